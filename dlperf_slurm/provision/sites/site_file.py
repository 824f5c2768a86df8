"""What Slurm reports of a cluster, and a login node's tools -> the text of a usable site file."""

import json
import textwrap
from collections.abc import Iterator
from typing import Optional

from dlperf_slurm.provision.sites.login_node import LoginNodeTools
from dlperf_slurm.provision.sites.slurm_values import find_capability
from dlperf_slurm.provision.sites.survey import NodeKind, Partition, Survey
from dlperf_slurm.version import __version__

DEFAULT_MINUTES = 30
# the values of `srun --mpi` for Open MPI, then for MPICH and its derivatives, the best first
MPI_CHOICES = ("pmix", "cray_shasta", "pmi2")
ASK = "# ASK THE ADMIN:"


def write_site_file(survey: Survey, tools: LoginNodeTools, device: Optional[str] = None) -> str:
    """Return the text of a cluster's site file, with comments on choices and on what is unknown.

    `device` is "cpu" or "cuda"; None chooses GPUs if a partition has some.
    """
    partition = choose_partition(survey, device)
    gpus = partition.gpus_per_node if partition and device != "cpu" else 0
    lines = [
        f"# Cluster {survey.cluster_name}, Slurm {survey.version}: written by dlperf-slurm "
        f"{__version__} site init from what",
        "# scontrol, sinfo, sacctmgr and srun report. For the other keys, see "
        "site_configs/example.toml (copied by dlperf-slurm init).",
        *(f"{ASK} {problem}" for problem in survey.problems),
        "",
        'scheduler = "slurm"',
        *([f"clusters = {_quote(survey.clusters)}"] if survey.clusters else []),
        f"device = {_quote('cuda' if gpus or device == 'cuda' else 'cpu')}",
        "",
        *_write_partition(survey, partition),
        "",
        *_write_nodes(partition, gpus, device),
        "",
        *_write_accounts(survey, partition),
        "",
        *_write_sharing(partition),
        "",
        *_write_limits(survey, partition),
        *_write_tools(tools),
        "",
        *_write_time_limit(partition),
        "",
        *_write_launcher(survey),
    ]
    return "\n".join(lines) + "\n"


def choose_partition(survey: Survey, device: Optional[str]) -> Optional[Partition]:
    """Choose the default partition, or else the one with most nodes.

    Prefers partitions with GPUs unless `device` is "cpu". Returns None if Slurm reports no
    partition that is up and that the user may use.
    """
    accounts = survey.accounts
    usable = [
        known
        for known in survey.partitions
        if known.is_up and (not accounts or any(_accepts(known, account) for account in accounts))
    ]
    with_gpus = [known for known in usable if known.gpus_per_node]
    fitting = with_gpus if with_gpus and device != "cpu" else usable
    return max(fitting, key=lambda known: (known.is_default, known.node_count), default=None)


def _write_partition(survey: Survey, chosen: Optional[Partition]) -> Iterator[str]:
    """Yield the site file's comments on all partitions, and the line of the chosen one."""
    if survey.partitions:
        yield "# Partitions: nodes x cores, memory and GPUs of each node; time limit:"
    for known in survey.partitions:
        kinds = "; ".join(map(_describe_nodes, known.nodes)) or "no nodes"
        minutes = "no limit" if known.max_minutes is None else f"{known.max_minutes} min"
        notes = [
            *(["the default"] if known.is_default else []),
            *([] if known.is_up else ["accepts no jobs now"]),
            *(["accounts " + ",".join(known.accounts)] if known.accounts else []),
        ]
        yield f"#   {known.name}: {kinds}; {minutes}" + "".join(f"; {note}" for note in notes)
    if chosen is None:
        yield f"{ASK} which partition may I use? sinfo lists none that is up"
        yield '# partition = "gpu"'
    else:
        yield f"partition = {_quote(chosen.name)}"


def _describe_nodes(kind: NodeKind) -> str:
    """Describe equal nodes: "4 x 64 cores, 512 GiB, 4 x a100"."""
    gpus = ", ".join(f"{count} x {name or 'GPU'}" for name, count in kind.gpus)
    features = f", {kind.features}" if kind.features else ""
    what = f"{kind.count} x {kind.cpus} cores, {kind.memory_mib / 1024:.0f} GiB"
    return what + (f", {gpus}" if gpus else ", no GPU") + features


def _write_nodes(partition: Optional[Partition], gpus: int, device: Optional[str]) -> Iterator[str]:
    """Yield the lines on nodes, cores and GPUs; `gpus` are those of a node, 0 to use CPUs."""
    if partition is None or not partition.nodes:
        yield f"{ASK} how many nodes may a job have, with how many cores and GPUs each?"
        yield "# max_nodes = 4"
        yield "# max_devices_per_node = 8"
        yield "cpus_per_rank = 1"
        yield 'gpu_request = "none"'
        return
    yield f"max_nodes = {partition.largest_job}"
    fewest_cpus = min(kind.cpus for kind in partition.nodes if kind.gpus or not gpus)
    if gpus:
        types = sorted({name for kind in partition.nodes for name, _ in kind.gpus if name})
        yield f"max_devices_per_node = {gpus}"
        cores = max(1, fewest_cpus // gpus)
        yield f"cpus_per_rank = {cores}  # {fewest_cpus} cores for {gpus} GPUs"
        yield 'gpu_request = "gres"  # --gres=gpu:N; or "gpus-per-node" for --gpus-per-node=N'
        if len(types) > 1:
            yield f"# several types of GPU; compare only runs on one of them: {', '.join(types)}"
            yield f"gpu_type = {_quote(_choose_type(partition))}"
        elif types:
            yield f"# gpu_type = {_quote(types[0])}"
        capability = find_capability(_choose_type(partition))
        if capability:
            yield "# cases whose framework has no code for these GPUs are left out"
            yield f"compute_capability = {_quote(capability)}"
        else:
            yield (
                "# cases whose framework has no code for these GPUs are left out; doctor prints "
                "the capability"
            )
            yield '# compute_capability = "9.0"'
        return
    yield f"max_devices_per_node = {max(1, fewest_cpus)}  # each rank gets a part of the cores"
    yield "cpus_per_rank = 1"
    if device == "cuda":
        yield (
            f"{ASK} how are GPUs requested? no node of partition {partition.name} has a GPU in its "
            "Gres"
        )
    yield 'gpu_request = "none"'


def _choose_type(partition: Partition) -> str:
    """Return the type of GPU that most nodes of a partition have; "" for GPUs without a type."""
    counts: dict[str, int] = {}
    for kind in partition.nodes:
        for name, _ in kind.gpus:
            counts[name] = counts.get(name, 0) + kind.count
    return max(counts, key=lambda name: counts[name])


def _write_accounts(survey: Survey, partition: Optional[Partition]) -> Iterator[str]:
    """Yield the site file's lines on account and QOS; the default account is only a comment."""
    accounts = survey.accounts
    if not survey.has_accounts:
        yield "# This cluster has no accounts and no QOS."
        return
    if not accounts:
        yield f"{ASK} which account and QOS may I use? sacctmgr lists none for me"
        yield '# account = "benchmarks"'
        yield '# qos = "normal"'
        return
    allowed = [name for name in accounts if _accepts(partition, name)] or accounts
    account = survey.default_account if survey.default_account in allowed else allowed[0]
    yield f"# Your accounts: {', '.join(accounts)}."
    if account == survey.default_account:
        yield f"# account = {_quote(account)}  # your default, used if no account is set"
    else:
        yield f"account = {_quote(account)}"
    for name in survey.list_qos(account):
        known = survey.find_qos(name)
        parts = [
            *([f"{known.max_minutes} min"] if known and known.max_minutes is not None else []),
            *([f"{known.max_submit} jobs"] if known and known.max_submit is not None else []),
        ]
        yield f"#   QOS {name}" + (f": at most {' and '.join(parts)}" if parts else "")
    default_qos = survey.find_default_qos(account)
    if default_qos:
        yield f"# qos = {_quote(default_qos)}  # your default"


def _accepts(partition: Optional[Partition], account: str) -> bool:
    """Return whether a partition may be used with this account; True for None."""
    return partition is None or partition.accounts is None or account in partition.accounts


def _write_sharing(partition: Optional[Partition]) -> Iterator[str]:
    """Yield the site file's lines on exclusive nodes (`exclusive`) and memory."""
    if partition is not None and partition.is_exclusive:
        yield "# this partition allocates whole nodes"
        yield "exclusive = true"
    else:
        yield "# exclusive = true          # whole nodes: other jobs on a node disturb measurements"
    yield "# memory_mib_per_node = 0    # all memory of the nodes; --exclusive allocates only cores"


def _write_limits(survey: Survey, partition: Optional[Partition]) -> Iterator[str]:
    """Yield the site file's comments on the largest array job, and on limits of queued jobs."""
    if survey.max_array_size is not None:
        yield f"# MaxArraySize is {survey.max_array_size}; this tool reads it from the cluster."
    limits = [known.max_submit for known in survey.associations if known.max_submit]
    if limits:
        most = min(limits)
        yield f"# Your account is limited to {most} jobs in the queue; each array task counts."


def _write_tools(tools: LoginNodeTools) -> Iterator[str]:
    """Yield the site file's comments on modules and container runtimes."""
    yield ""
    if tools.modules:
        yield "# Modules that jobs may need; those of frameworks are under [environments.NAME]."
        margin = "#   "
        yield from textwrap.wrap(
            " ".join(tools.modules),
            width=100,
            initial_indent=margin,
            subsequent_indent=margin,
            break_long_words=False,
            break_on_hyphens=False,
        )
        yield f"# modules = [{_quote(tools.modules[0])}]"
    else:
        yield f"{ASK} are there modules for CUDA and MPI? `module avail` lists none here"
    if tools.runtimes:
        yield f"# Container runtimes here: {', '.join(tools.runtimes)}"
        yield "# [environments.pytorch.container]"
        yield f"# runtime = {_quote(tools.runtimes[0])}"
        yield '# image = "/shared/images/pytorch.sif"'
    else:
        yield (
            f"{ASK} can jobs use containers? no container runtime is on PATH, and srun has no "
            "option for containers"
        )


def _write_time_limit(partition: Optional[Partition]) -> Iterator[str]:
    """Yield the site file's table of time limits, with a default that the partition allows."""
    limit = partition.max_minutes if partition else None
    minutes = DEFAULT_MINUTES if limit is None else max(1, min(DEFAULT_MINUTES, limit))
    yield "[time_limit_minutes]"
    of_partition = f"  # the partition allows {limit} minutes" if limit is not None else ""
    yield f"default = {minutes}{of_partition}"


def _write_launcher(survey: Survey) -> Iterator[str]:
    """Yield the site file's table of the launcher: srun with one of MPI_CHOICES, else mpirun.

    If `srun --mpi=list` lists nothing: srun with pmix, and a question to the administrator.
    """
    yield "[launcher]"
    known = survey.mpi_plugins
    chosen = next((name for name in MPI_CHOICES if name in known), None)
    if chosen is not None:
        yield 'name = "srun"'
        yield (
            f"mpi = {_quote(chosen)}  # available: {', '.join(known)}; Open MPI needs pmix, MPICH "
            "pmi2"
        )
    elif known:
        yield f"# srun cannot start MPI here: `srun --mpi=list` has only {', '.join(known)}"
        yield 'name = "mpirun"'
    else:
        yield f"{ASK} how is MPI started? `srun --mpi=list` lists no plug-in"
        yield 'name = "srun"'
        yield 'mpi = "pmix"'


def _quote(text: str) -> str:
    # a TOML string of ASCII is a JSON one
    return json.dumps(text)
