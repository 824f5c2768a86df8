"""What Slurm reports of a cluster, and a login node's tools -> the text of a usable site file.

The text is that of `templates/site.toml.j2`, with comments on choices and on what is unknown.
"""

import json
import textwrap
from collections.abc import Sequence
from typing import Optional

import jinja2

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.provision.sites.login_node import LoginNodeTools
from dlperf_slurm.provision.sites.survey import (
    NodeKind,
    Partition,
    Qos,
    Survey,
    find_capability,
)
from dlperf_slurm.version import __version__

TEMPLATE = "site.toml.j2"
DEFAULT_MINUTES = 30
# the values of `srun --mpi` for Open MPI, then for MPICH and its derivatives, the best first
MPI_CHOICES = ("pmix", "cray_shasta", "pmi2")


def write_site_file(survey: Survey, tools: LoginNodeTools, device: Optional[str] = None) -> str:
    """Return the text of a cluster's site file, with comments on choices and on what is unknown.

    `device` is "cpu" or "cuda"; None chooses GPUs if a partition has some.
    """
    partition = choose_partition(survey, device)
    nodes = partition.nodes if partition else ()
    gpus = partition.gpus_per_node if partition and device != "cpu" else 0
    gpu_type = _choose_type(nodes) if gpus else ""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(find_resource_dir("templates"))),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["limits"] = _describe_limits
    environment.filters["partition"] = _describe_partition
    # a TOML string of ASCII is a JSON one
    environment.filters["toml"] = json.dumps
    environment.filters["wrap"] = _wrap
    return environment.get_template(TEMPLATE).render(
        survey=survey,
        version=__version__,
        device="cuda" if gpus or device == "cuda" else "cpu",
        partition=partition,
        gpus=gpus,
        cpus=min((kind.cpus for kind in nodes if kind.gpus or not gpus), default=0),
        gpu_types=sorted({name for kind in nodes for name, _ in kind.gpus if name}),
        gpu_type=gpu_type,
        capability=find_capability(gpu_type),
        account=_choose_account(survey, partition),
        limits=[known.max_submit for known in survey.associations if known.max_submit],
        tools=tools,
        minutes=partition.max_minutes if partition else None,
        default_minutes=DEFAULT_MINUTES,
        plugin=next((name for name in MPI_CHOICES if name in survey.mpi_plugins), ""),
    )


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


def _choose_type(nodes: Sequence[NodeKind]) -> str:
    """Return the type of GPU that most nodes have; "" for GPUs without a type."""
    counts: dict[str, int] = {}
    for kind in nodes:
        for name, _ in kind.gpus:
            counts[name] = counts.get(name, 0) + kind.count
    return max(counts, key=lambda name: counts[name])


def _choose_account(survey: Survey, partition: Optional[Partition]) -> str:
    """Return the user's default account, or another one if the partition does not accept it."""
    allowed = [name for name in survey.accounts if _accepts(partition, name)] or survey.accounts
    if survey.default_account in allowed or not allowed:
        return survey.default_account
    return allowed[0]


def _accepts(partition: Optional[Partition], account: str) -> bool:
    """Return whether a partition may be used with this account; True for None."""
    return partition is None or partition.accounts is None or account in partition.accounts


def _describe_partition(known: Partition) -> str:
    """Describe a partition: "gpu: 4 x 64 cores, 512 GiB, 4 x a100; 60 min; the default"."""
    return "; ".join(
        [
            f"{known.name}: {'; '.join(map(_describe_nodes, known.nodes)) or 'no nodes'}",
            "no limit" if known.max_minutes is None else f"{known.max_minutes} min",
            *(["the default"] if known.is_default else []),
            *([] if known.is_up else ["accepts no jobs now"]),
            *(["accounts " + ",".join(known.accounts)] if known.accounts else []),
        ]
    )


def _describe_nodes(kind: NodeKind) -> str:
    """Describe equal nodes: "4 x 64 cores, 512 GiB, 4 x a100"."""
    gpus = ", ".join(f"{count} x {name or 'GPU'}" for name, count in kind.gpus)
    features = f", {kind.features}" if kind.features else ""
    what = f"{kind.count} x {kind.cpus} cores, {kind.memory_mib / 1024:.0f} GiB"
    return what + (f", {gpus}" if gpus else ", no GPU") + features


def _describe_limits(qos: Optional[Qos]) -> str:
    """Describe the limits of a QOS: ": at most 60 min and 100 jobs"; "" without any."""
    parts = [
        *([f"{qos.max_minutes} min"] if qos and qos.max_minutes is not None else []),
        *([f"{qos.max_submit} jobs"] if qos and qos.max_submit is not None else []),
    ]
    return f": at most {' and '.join(parts)}" if parts else ""


def _wrap(names: Sequence[str]) -> str:
    """Return names in lines of comments."""
    return textwrap.fill(
        " ".join(names),
        width=100,
        initial_indent="#   ",
        subsequent_indent="#   ",
        break_long_words=False,
        break_on_hyphens=False,
    )
