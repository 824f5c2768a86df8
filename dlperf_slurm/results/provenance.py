"""Records of a run -> notes on differences of machines, versions or settings between its cases."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlperf_slurm.config.folders import CUDA
from dlperf_slurm.contract.record import Record
from dlperf_slurm.worker.provenance import IDENTITIES
from dlperf_slurm.worker.provenance.gpu_affinity import AFFINITY, FAR

if TYPE_CHECKING:
    from pandas import DataFrame

# facts that should be equal in all cases of a run
OF_RUN = (
    "code_digest",
    "cpu_boost",
    "cpu_cores",
    "cpu_count",
    "cpu_driver",
    "cpu_governor",
    "cpu_limits_mhz",
    "cpu_microcode",
    "cpu_model",
    "cpu_smt",
    "cpu_sockets",
    "cuda_driver",
    "gpu_application_clock_mhz",
    "gpu_driver",
    "gpu_ecc",
    "gpu_greatest_clock_mhz",
    "gpu_mig",
    "gpu_models",
    "gpu_nvlinks",
    "gpu_pcie",
    "gpu_persistence",
    "gpu_power_limit_watts",
    "gpu_vbios",
    "infiniband",
    "kernel",
    "kernel_options",
    "machine",
    "memory_gib",
    "numa_balancing",
    "numa_nodes",
    "transparent_huge_pages",
)
# Facts that may depend on the topology: they should be equal in the repeats and hosts of one case.
# All facts in neither list should be equal in cases of one framework and precision.
OF_CASE = (
    "cgroup_cpus",
    "cgroup_memory_mib",
    "cpu_numa_nodes",
    "cpus_allowed",
    AFFINITY,
    "gpu_count",
    "gpu_numa_node",
    "gpu_topology",
    "libraries",
)
# "telemetry" is the reason for missing telemetry, which has a footnote of its own; "compilation"
# says whether JAX's programs were compiled or cached, neither of which is measured
NOT_COMPARED = (*IDENTITIES, "compilation", "telemetry")

# job variables by which Slurm restricts the GPUs that a task can see
ISOLATING = ("SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND")

MAX_PLACES = 3
MAX_VALUE_CHARACTERS = 60


@dataclass
class Fact:
    """A version or host fact of a case, with the (host, repeat) pairs that reported each value."""

    name: str
    seen: dict[str, list[tuple[str, int]]] = field(default_factory=dict)

    @property
    def is_shared(self) -> bool:
        """Whether all hosts and repeats of the case have the same value of this fact."""
        return len(self.seen) == 1

    @property
    def is_by_host(self) -> bool:
        """Whether each host has the same value of this fact in all repeats."""
        hosts = [{host for host, _ in places} for places in self.seen.values()]
        return sum(map(len, hosts)) == len(set().union(*hosts))

    def describe(self) -> str:
        """Describe the values, each with its hosts or repeats: "cpu_model 'A' (n1), 'B' (n2)"."""
        named = ((value, self._list_places(places)) for value, places in self.seen.items())
        # logs of external scripts have no host names
        values = (f"{quote(value)} ({name})" if name else quote(value) for value, name in named)
        return f"{self.name} {', '.join(values)}"

    def _list_places(self, places: Sequence[tuple[str, int]]) -> str:
        """Name hosts, or hosts and repeats, of one value, at most MAX_PLACES."""
        is_by_host = self.is_by_host
        names = [host if is_by_host else f"{host} in repeat {n}" for host, n in places]
        distinct = list(dict.fromkeys(names))
        if len(distinct) > MAX_PLACES:
            left = len(distinct) - MAX_PLACES + 1
            distinct[MAX_PLACES - 1 :] = [f"{left} more"]
        return " and ".join([", ".join(distinct[:-1])] * (len(distinct) > 1) + distinct[-1:])


def describe_outliers(facts: "DataFrame", plan: "DataFrame") -> dict[str, str]:
    """Describe the facts in which a case differs from most cases of the run, by case id.

    `facts` has the rows of `list_shared` of all cases, `plan` the planned cases. Versions and
    settings are compared within cases of one framework and precision.
    """
    known: dict[str, dict[str, tuple[str, str]]] = {}
    for case_id, name, value, text in zip(*(facts[column] for column in facts)):
        known.setdefault(case_id, {})[name] = (value, text)
    odd = [*_find_outliers(known, OF_RUN)]
    for _, alike in plan.groupby(["framework", "precision"], sort=False):
        own = {case_id: known[case_id] for case_id in alike.index if case_id in known}
        names = {name for facts_of_case in own.values() for name in facts_of_case}
        odd += _find_outliers(own, names - {*OF_RUN, *OF_CASE})
    texts: dict[str, list[str]] = {}
    for case_id, text in odd:
        texts.setdefault(case_id, []).append(text)
    return {
        case_id: f"differs from most cases of this run: {'; '.join(own)}"
        for case_id, own in texts.items()
    }


def describe_affinity(records: Iterable[Record]) -> Iterator[str]:
    """Yield a warning on hosts where a rank's CPUs were all on another NUMA node than its GPU."""
    hosts = dict.fromkeys(
        host
        for record in records
        # a fast test first, as few records have such a host
        if any(
            FAR in own.get(AFFINITY, "")
            for own in (record.platform, *(one.facts for one in record.hosts))
        )
        for host, facts in list_hosts(record)
        if FAR in facts.get(AFFINITY, "")
    )
    if hosts:
        yield (
            f"ranks on {', '.join(hosts)} ran on cores of another NUMA node than their GPU "
            f"({AFFINITY} in record.json has details); set CPU binding in `launcher.flags`"
        )


def describe_isolation(records: Iterable[Record]) -> Iterator[str]:
    """Yield a warning if Slurm showed each rank only its own GPU: NCCL may not have used NVLink."""
    told = dict.fromkeys(
        f"{name}={record.job[name]}"
        for record in records
        if record.case.device == CUDA and record.case.devices_per_node > 1
        for name in ISOLATING
        if record.job.get(name, "none") != "none"
    )
    if told:
        yield (
            f"each rank saw only its own GPU ({', '.join(told)}), so NCCL may have copied through "
            "host memory instead of NVLink; to check, set NCCL_DEBUG=INFO, which prints `via P2P` "
            "or `via SHM`"
        )


def list_facts(records: Iterable[Record]) -> list[Fact]:
    """Return a case's facts (versions, machines), each with its values and who reported them.

    `Fact.seen` has the (host, repeat) pairs of each value; the value of an unreported fact is "".
    """
    told = [
        (host, record.case.repeat, facts)
        for record in records
        for host, facts in list_hosts(record)
    ]
    names = dict.fromkeys(name for _, _, facts in told for name in facts)
    found = {name: Fact(name) for name in names if name not in NOT_COMPARED}
    for host, repeat, facts in told:
        for name, fact in found.items():
            fact.seen.setdefault(facts.get(name, ""), []).append((host, repeat))
    return [*found.values()]


def list_hosts(record: Record) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield each host of a record and its facts by name; versions are those of rank 0."""
    shared = {**record.platform, **record.versions}
    other = {host.host: host.facts for host in record.hosts}
    for name in dict.fromkeys(rank.host for rank in record.ranks):
        yield name, {**shared, **other.get(name, {})}


def list_shared(facts: Iterable[Fact]) -> Iterator[tuple[str, str, str]]:
    """Yield (name, value, description) of facts; the latter two "" if hosts or repeats differ."""
    for fact in facts:
        (value, *_), is_shared = fact.seen, fact.is_shared
        yield fact.name, value if is_shared else "", fact.describe() if is_shared else ""


def describe_own_differences(facts: Iterable[Fact]) -> Iterator[str]:
    """Yield a note on a case's facts that differ by host, and one on those that do by repeat."""
    differing = [fact for fact in facts if not fact.is_shared]
    for who, is_by_host in (("hosts", True), ("repeats", False)):
        texts = [fact.describe() for fact in differing if fact.is_by_host == is_by_host]
        if texts:
            yield f"{who} differ: {'; '.join(texts)}"


def _find_outliers(
    cases: Mapping[str, Mapping[str, tuple[str, str]]], names: Container[str]
) -> Iterator[tuple[str, str]]:
    """Yield (case id, text) for each fact whose value differs from the most common one.

    `cases` has (value, description) by case id and name of the fact; only the facts in `names` are
    compared.
    """
    for name in dict.fromkeys(name for facts in cases.values() for name in facts):
        if name not in names:
            continue
        told = {case_id: facts[name] for case_id, facts in cases.items() if name in facts}
        known = {case_id: (value, text) for case_id, (value, text) in told.items() if value}
        values = Counter(value for value, _ in known.values())
        (usual, _), *_ = values.most_common(1) or [("", 0)]
        for case_id, (value, text) in known.items():
            if value != usual:
                yield case_id, f"{text}, else {quote(usual)}"


def quote(value: str) -> str:
    """Quote a value, cut to MAX_VALUE_CHARACTERS; "none" for an empty one."""
    if not value:
        return "none"
    cut = value if len(value) <= MAX_VALUE_CHARACTERS else f"{value[:MAX_VALUE_CHARACTERS]}..."
    return f"'{cut}'"
