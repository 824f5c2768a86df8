"""Records of one case in two runs -> whether they are of the same work, and what else changed."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Protocol

from dlperf_slurm.contract.record import Record
from dlperf_slurm.matrix.axes import AXES
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.stats.median import compute_median
from dlperf_slurm.worker.provenance import IDENTITIES

# With another of these it is other work, or on another number of devices. Case ids have most of
# them, but neither the sizes of the model, nor the steps, nor the batch size that a search found.
# A script is known by the format of its log: its name is in the case_id, and was not always kept.
WORK = (
    "case.model",
    "case.model_parameters",
    "parameter_count",
    *(f"case.axes.{axis}" for axis in AXES if axis != "script"),
    "case.log_format",
    "case.training",
    "case.warmup_steps",
    "case.measured_steps",
)

# Why runs are compared at all, with versions and machine: named beside the verdict.
SURROUNDINGS = (
    "case.device",
    "case.cpus_per_rank",
    "case.seed",
    "case.log_rule",
    "case.telemetry_interval_seconds",
    "clock.name",
)
JOB_VARIABLES = ("SLURM_CLUSTER_NAME", "SLURM_JOB_PARTITION")

# the least slowdown that anybody compares runs for
MIN_STOLEN_DIFFERENCE = 0.02

# distinct values of a case's sound records, by name
Facts = Mapping[str, Sequence[str]]
NOT_TOLD = ["none"]


class Measured(Protocol):
    """A run, or what it has of a case: with which code it was measured, and on which site."""

    @property
    def tool(self) -> str: ...

    @property
    def site_name(self) -> str: ...


def explain_absence(run_name: str, outcomes: CaseOutcomes) -> str:
    """Why a run has no figures of a case; empty when it has."""
    if outcomes.case.reason:
        return f"{run_name} did not run it: {outcomes.case.reason}"
    if outcomes.records:
        return ""
    return f"{run_name} has no sound record: {outcomes.outcomes[-1].problem}"


def list_work(records: Sequence[Record]) -> dict[str, list[str]]:
    """What decides whether a case's figures are of the same work."""
    return {path: _list_distinct(map(attrgetter(path), records)) for path in WORK}


def find_other_work(a: Facts, b: Facts) -> str:
    """Why figures of one case_id are not of the same work; empty when they are."""
    differences = []
    for path in WORK:
        # repeats of one run that differ among themselves are not comparable either
        if a[path] != b[path] or len(a[path]) > 1:
            differences.append(_describe_change(path.rpartition(".")[2], a[path], b[path]))
    return f"other work: {'; '.join(differences)}" if differences else ""


def list_surroundings(records: Sequence[Record]) -> dict[str, list[str]]:
    """Versions, machine and settings of a case."""
    described = [_describe_surroundings(record) for record in records]
    return {
        name: _list_distinct(facts.get(name, "") for facts in described)
        for name in dict.fromkeys(name for facts in described for name in facts)
    }


def name_changes(a: Facts, b: Facts) -> list[str]:
    """What of the surroundings is not the same in both runs."""
    pairs = {name: (a.get(name, NOT_TOLD), b.get(name, NOT_TOLD)) for name in {**a, **b}}
    return [_describe_change(name, x, y) for name, (x, y) in pairs.items() if x != y]


def name_stolen_time(a: Sequence[Record], b: Sequence[Record]) -> list[str]:
    """What neighbours on shared hosts had of the CPUs, where that is another share in the runs."""
    shares = [compute_median([record.stolen_share for record in records]) for records in (a, b)]
    if abs(shares[0] - shares[1]) < MIN_STOLEN_DIFFERENCE:
        return []
    texts = [[f"{100 * share:.0f} %"] for share in shares]
    return [_describe_change("CPU time that a hypervisor gave to others", *texts)]


def name_tool_changes(a: Measured, b: Measured) -> list[str]:
    """The code that measured, and the site file."""
    pairs = {
        "dlperf_slurm": [a.tool, b.tool],
        "site": [a.site_name, b.site_name],
    }
    return [_describe_change(name, [x], [y]) for name, (x, y) in pairs.items() if x != y]


def _describe_surroundings(record: Record) -> dict[str, str]:
    return {
        **record.versions,
        "devices": ", ".join(sorted({rank.device_name for rank in record.ranks})),
        **_describe_hosts(record),
        **{path: str(attrgetter(path)(record)) for path in SURROUNDINGS},
        **{name: record.job.get(name, "") for name in JOB_VARIABLES},
    }


def _describe_hosts(record: Record) -> dict[str, str]:
    """The facts of all hosts, where they differ every value; not what only tells machines apart."""
    hosts = [record.platform, *({**record.platform, **host.facts} for host in record.hosts)]
    names = dict.fromkeys(name for facts in hosts for name in facts)
    return {
        name: " and ".join(_list_distinct(facts.get(name, "") for facts in hosts))
        for name in names
        if name not in (*IDENTITIES, "telemetry")
    }


def _list_distinct(values: Iterable[object]) -> list[str]:
    return sorted({str(value) or "none" for value in values})


def _describe_change(name: str, a: Sequence[str], b: Sequence[str]) -> str:
    return f"{name} {' and '.join(a)} -> {' and '.join(b)}"
