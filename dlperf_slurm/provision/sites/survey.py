"""Output of Slurm's clients -> the partitions, accounts, QOS and limits of this cluster."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm import slurm_client
from dlperf_slurm.config.folders import find_user_name
from dlperf_slurm.errors import SchedulerError

_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_GPUS = re.compile(r"gpu(?::([^:,()]+))??:(\d+)(?=[(,]|$)")
# Compute capability (NVIDIA's "CUDA GPU Compute Capability") or AMD's LLVM target -> words in the
# GRES names of such GPUs, as in "nvidia_a100-sxm4-80gb".
_TYPES = {
    "6.0": "p100",
    "7.0": "v100 v100s",
    "7.5": "t4",
    "8.0": "a100 a30 a800",
    "8.6": "a2 a10 a10g a16 a40",
    "8.9": "l4 l40 l40s",
    "9.0": "h100 h200 h800 h20 gh200",
    "10.0": "b200 gb200",
    "10.3": "b300 gb300",
    "gfx908": "mi100",
    "gfx90a": "mi210 mi250 mi250x",
    "gfx942": "mi300a mi300x mi325x",
}
_CAPABILITIES = {word: made_for for made_for, words in _TYPES.items() for word in words.split()}


def parse_minutes(text: str) -> Optional[int]:
    """Parse a time limit to whole minutes, cutting seconds; None for other text ("UNLIMITED").

    The formats are those of sbatch's --time: "minutes", "minutes:seconds", "hours:minutes:seconds",
    "days-hours", "days-hours:minutes", "days-hours:minutes:seconds".
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    days, *rest = match.groups()
    numbers = [int(part) for part in rest if part is not None]
    if days is not None:
        hours, minutes = (*numbers, 0)[:2]
        return (int(days) * 24 + hours) * 60 + minutes
    if len(numbers) == 3:
        return numbers[0] * 60 + numbers[1]
    return numbers[0]


def parse_count(text: str) -> Optional[int]:
    """Parse the number at the start of a text; None for "UNLIMITED", "" and other words."""
    match = re.match(r"\d+", text.strip())
    return int(match.group()) if match else None


def parse_gpus(gres: str) -> dict[str, int]:
    """Parse a GRES such as "gpu:a100:8(S:0-1),tmp:1" to type -> GPUs, "" without a type."""
    gpus: dict[str, int] = {}
    for kind, count in _GPUS.findall(gres):
        gpus[kind] = gpus.get(kind, 0) + int(count)
    return gpus


def find_capability(gpu_type: str) -> str:
    """Return the compute capability of a GPU type in GRES, "9.0" for "nvidia_h100", or ""."""
    parts = re.split(r"[^a-z0-9]+", gpu_type.lower())
    return next((_CAPABILITIES[part] for part in parts if part in _CAPABILITIES), "")


def parse_names(text: str) -> Optional[tuple[str, ...]]:
    """Parse a comma-separated list such as AllowAccounts; None if it allows all or is empty."""
    names = tuple(filter(None, text.split(",")))
    return None if not names or names in (("ALL",), ("(null)",)) else names


@dataclass(frozen=True)
class NodeKind:
    """Equal nodes of a partition: their number, and what each of them has.

    `gpus` are (GRES type, GPUs per node), with "" for GPUs without a type.
    """

    count: int
    cpus: int
    memory_mib: int
    gpus: tuple[tuple[str, int], ...]
    features: str

    def count_gpus(self, gpu_type: Optional[str] = None) -> int:
        """Return the GPUs per node, of one GRES type or, for None, of all."""
        return sum(count for kind, count in self.gpus if gpu_type in (None, kind))


@dataclass(frozen=True)
class Partition:
    """A partition; None means no limit, or that all accounts or QOS are allowed.

    `own_qos` is the QOS whose limits apply to all its jobs.
    """

    name: str
    is_default: bool
    is_up: bool
    is_exclusive: bool
    max_nodes: Optional[int]
    max_minutes: Optional[int]
    accounts: Optional[tuple[str, ...]]
    qos: Optional[tuple[str, ...]]
    nodes: tuple[NodeKind, ...]
    own_qos: str = ""

    @property
    def node_count(self) -> int:
        return sum(kind.count for kind in self.nodes)

    @property
    def largest_job(self) -> int:
        """The largest number of nodes that a job may have: MaxNodes, or all nodes if fewer."""
        return min(self.node_count, self.max_nodes or self.node_count)

    @property
    def gpus_per_node(self) -> int:
        """The GPUs per node of the most frequent kind of nodes with GPUs."""
        with_gpus = [kind for kind in self.nodes if kind.gpus]
        most = max(with_gpus, key=lambda kind: kind.count, default=None)
        return most.count_gpus() if most else 0


@dataclass(frozen=True)
class Association:
    """An account that the user may charge; with `partition`, in that partition only.

    `max_submit` is the number of jobs that may be in the queue, None without a limit.
    """

    account: str
    partition: str
    qos: tuple[str, ...]
    default_qos: str
    max_submit: Optional[int]


@dataclass(frozen=True)
class Qos:
    """A QOS with its limits per user, None for no limit, and its flags as sacctmgr names them."""

    name: str
    max_minutes: Optional[int]
    max_submit: Optional[int]
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Survey:
    """What Slurm reports of a cluster; fields without an answer are empty, see `problems`.

    `clusters` is the name of the surveyed cluster, or "" for this host's own. `enforced` are the
    words of AccountingStorageEnforce. With `has_submit_plugin` the cluster may change requests when
    they are submitted.
    """

    cluster_name: str = ""
    version: str = ""
    max_array_size: Optional[int] = None
    has_accounts: bool = True
    enforced: frozenset[str] = frozenset()
    partitions: tuple[Partition, ...] = ()
    associations: tuple[Association, ...] = ()
    default_account: str = ""
    qos: tuple[Qos, ...] = ()
    mpi_plugins: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    clusters: str = ""
    has_submit_plugin: bool = False

    @property
    def accounts(self) -> list[str]:
        """The distinct accounts that the user may charge."""
        return list(dict.fromkeys(known.account for known in self.associations))

    def find_default_qos(self, account: str) -> str:
        """Return the QOS of an account's jobs that name none, or "" if Slurm does not report it."""
        found = (known.default_qos for known in self.associations if known.account == account)
        return next(found, "")

    def find_qos(self, name: str) -> Optional[Qos]:
        return next((known for known in self.qos if known.name == name), None)

    def list_qos(self, account: str) -> list[str]:
        """List the QOS that the user may request with an account; with any account for ""."""
        found = (known for known in self.associations if account in ("", known.account))
        return list(dict.fromkeys(name for known in found for name in known.qos))


def survey_cluster(clusters: str = "") -> Survey:
    """Return a cluster's partitions, accounts, QOS and limits, as Slurm's commands print them.

    `clusters` names another cluster than this host's own, as for --clusters. No job is submitted.
    Does not raise: errors are in the result's `problems`.
    """
    problems: list[str] = []

    def ask(*command: str) -> str:
        try:
            return slurm_client.run_client(command)
        except SchedulerError as error:
            problems.append(f"`{' '.join(command)}`: {error}".split("\n")[0])
            return ""

    there = slurm_client.get_cluster_option(clusters)
    config = slurm_client.parse_config(ask("scontrol", *there, "show", "config"))
    if not config and not any(map(slurm_client.is_forbidden, problems)):
        return Survey(problems=tuple(problems))
    partitions = parse_partitions(
        ask("scontrol", *there, "show", "partition", "--oneliner"),
        ask("sinfo", *there, "--noheader", "--exact", "--format=%R|%D|%c|%m|%G|%f"),
    )
    associations, default_account, qos = "", "", ""
    show = ("sacctmgr", "--noheader", "--parsable2", "show")
    cluster = config.get("ClusterName", clusters)
    if not cluster:
        known = ask(*show, "cluster", "format=Cluster").split()
        cluster = known[0] if len(known) == 1 else ""
    # a cluster that does not show its configuration may keep accounts
    has_accounts = "slurmdbd" in config.get("AccountingStorageType", "slurmdbd")
    if has_accounts:
        of_user = ("where", f"user={find_user_name()}")
        associations = ask(
            *show, "associations", *of_user, f"cluster={cluster}",
            "format=Account,Partition,QOS,DefaultQOS,MaxSubmit",
        )  # fmt: skip
        default_account = ask(*show, "user", *of_user, "format=DefaultAccount").strip()
        qos = ask(*show, "qos", "format=Name,MaxWall,MaxSubmitPU,Flags")
    return Survey(
        cluster_name=cluster,
        version=config.get("SLURM_VERSION", ""),
        max_array_size=parse_count(config.get("MaxArraySize", "")),
        has_accounts=has_accounts,
        enforced=frozenset(config.get("AccountingStorageEnforce", "none").split(",")),
        partitions=partitions,
        associations=parse_associations(associations),
        default_account=default_account.partition("\n")[0],
        qos=parse_qos(qos),
        mpi_plugins=parse_mpi_plugins(ask("srun", "--mpi=list")),
        problems=tuple(problems),
        clusters=clusters,
        has_submit_plugin=config.get("JobSubmitPlugins", "(null)") != "(null)",
    )


def parse_partitions(shown: str, listed: str) -> tuple[Partition, ...]:
    """Parse `scontrol show partition --oneliner` (`shown`) and `sinfo` (`listed`).

    sinfo has one line per kind of nodes: partition|nodes|CPUs|MiB|GRES|features.
    """
    nodes: dict[str, list[NodeKind]] = {}
    for partition, count, cpus, memory, gres, features in _split_rows(listed, 6):
        kind = NodeKind(
            count=parse_count(count) or 0,
            cpus=parse_count(cpus) or 0,
            memory_mib=parse_count(memory) or 0,
            gpus=tuple(sorted(parse_gpus(gres).items())),
            features="" if features == "(null)" else features,
        )
        nodes.setdefault(partition, []).append(kind)
    found = []
    for line in shown.splitlines():
        values: dict[str, str] = dict(re.findall(r"(\S+?)=(\S*)", line))
        name = values.get("PartitionName", "")
        if name:
            found.append(
                Partition(
                    name=name,
                    is_default=values.get("Default") == "YES",
                    is_up=values.get("State", "UP") == "UP",
                    is_exclusive=values.get("OverSubscribe", "").startswith("EXCLUSIVE"),
                    max_nodes=parse_count(values.get("MaxNodes", "")),
                    max_minutes=parse_minutes(values.get("MaxTime", "")),
                    accounts=parse_names(values.get("AllowAccounts", "")),
                    qos=parse_names(values.get("AllowQos", "")),
                    nodes=tuple(nodes.get(name, ())),
                    own_qos=values.get("QoS", ""),
                )
            )
    return tuple(found)


def parse_associations(text: str) -> tuple[Association, ...]:
    """Parse "account|partition|QOS,...|DefaultQOS|MaxSubmit" lines of sacctmgr, skipping others."""
    return tuple(
        Association(account, part, tuple(filter(None, qos.split(","))), default, parse_count(limit))
        for account, part, qos, default, limit in _split_rows(text, 5)
    )


def parse_qos(text: str) -> tuple[Qos, ...]:
    """Parse the lines "name|MaxWall|MaxSubmitPU|flags" of sacctmgr; an empty limit is None.

    Times become whole minutes. Lines with another number of fields are left out.
    """
    return tuple(
        Qos(name, parse_minutes(wall), parse_count(limit), frozenset(flags.split(",")))
        for name, wall, limit, flags in _split_rows(text, 4)
    )


def parse_mpi_plugins(text: str) -> tuple[str, ...]:
    """Parse the output of `srun --mpi=list` to the sorted values of `srun --mpi`."""
    names = re.findall(r"^(?:srun: )?\s*([a-z][\w]*)\s*$", text, re.M)
    versions = re.search(r"versions available: *(.*)", text)
    return tuple(sorted({*names, *(versions[1].replace(",", " ").split() if versions else ())}))


def _split_rows(text: str, columns: int) -> Sequence[Sequence[str]]:
    """Split lines at "|"; lines with another number of columns are left out."""
    rows = (line.strip().split("|") for line in text.splitlines())
    return [row for row in rows if len(row) == columns]
