"""Records of one case in two runs -> whether they did the same work, and what else changed."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from dlperf_slurm.contract.record import Record
from dlperf_slurm.matrix.axes import AXES
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.provenance import NOT_COMPARED
from dlperf_slurm.stats.median import compute_median

# Cases that differ in any of these did not do the same work. Case ids contain most of them, but
# not the sizes of the model, the steps, or the batch size that a search found. A script is
# identified by the format of its log, because records do not always have its name.
WORK = (
    "case.model",
    "case.model_parameters",
    "parameter_count",
    *(f"case.axes.{axis}" for axis in AXES if axis != "script"),
    "case.log_format",
    "case.training",
    "case.warmup_steps",
    "case.measured_steps",
    "case.min_warmup_seconds",
    "case.min_measured_seconds",
)

# Settings that may differ in compared runs, as versions may: changes are reported with the verdict.
REPORTED_SETTINGS = (
    "case.device",
    "case.cpus_per_rank",
    "case.seed",
    "case.log_rule",
    "case.telemetry_interval_seconds",
    "clock.name",
)
JOB_VARIABLES = ("SLURM_CLUSTER_NAME", "SLURM_JOB_PARTITION")

# the smallest difference of steal time to report
MIN_STOLEN_DIFFERENCE = 0.02

# distinct values in a case's valid records, by name
Facts = Mapping[str, Sequence[str]]
NOT_TOLD = ["none"]


def explain_absence(run_name: str, outcomes: CaseOutcomes) -> str:
    """Return why a run has no valid result of a case: "A has no valid result: OOM"; else ""."""
    if outcomes.case.reason:
        return f"{run_name} did not run this case: {outcomes.case.reason}"
    if outcomes.records:
        return ""
    return f"{run_name} has no valid result: {outcomes.outcomes[-1].problem}"


def list_work(records: Sequence[Record]) -> dict[str, list[str]]:
    """Return the distinct values of each path in WORK over a case's records, by path."""
    return {path: _list_distinct(map(attrgetter(path), records)) for path in WORK}


def find_other_work(a: Facts, b: Facts) -> str:
    """Describe how the work of two runs of a case differs, such as other model sizes; "" if equal.

    `a` and `b` are from `list_work`. Repeats of a run that did different work are a difference.
    """
    differences = [
        _describe_change(path.rpartition(".")[2], a[path], b[path])
        for path in WORK
        # runs whose own repeats did different work are not comparable either
        if a[path] != b[path] or len(a[path]) > 1
    ]
    return f"different workload: {'; '.join(differences)}" if differences else ""


def list_provenance(records: Sequence[Record]) -> dict[str, list[str]]:
    """Return a case's distinct values of each version, machine fact and setting, or "none".

    Devices and JOB_VARIABLES are included; the settings are REPORTED_SETTINGS.
    """
    described = [
        {
            **record.versions,
            "devices": ", ".join(sorted({rank.device_name for rank in record.ranks})),
            **_describe_hosts(record),
            **{path: str(attrgetter(path)(record)) for path in REPORTED_SETTINGS},
            **{name: record.job.get(name, "") for name in JOB_VARIABLES},
        }
        for record in records
    ]
    return {
        name: _list_distinct(facts.get(name, "") for facts in described)
        for name in dict.fromkeys(name for facts in described for name in facts)
    }


def describe_changes(a: Facts, b: Facts) -> list[str]:
    """List the versions, machine facts and settings that differ between two runs of a case.

    Each is a text such as "kernel 5.14 -> 6.4"; `a` and `b` are from `list_provenance`.
    """
    pairs = {name: (a.get(name, NOT_TOLD), b.get(name, NOT_TOLD)) for name in {**a, **b}}
    return [_describe_change(name, x, y) for name, (x, y) in pairs.items() if x != y]


def describe_stolen_time(a: Sequence[Record], b: Sequence[Record]) -> list[str]:
    """Describe a difference in steal time (CPU time that a hypervisor gave to others), if any.

    `a` and `b` are the valid records of a case in both runs; their medians are compared. Returns a
    list of one text, or [] if they differ by less than MIN_STOLEN_DIFFERENCE (a share).
    """
    shares = [compute_median([record.stolen_share for record in records]) for records in (a, b)]
    if abs(shares[0] - shares[1]) < MIN_STOLEN_DIFFERENCE:
        return []
    texts = [[f"{100 * share:.0f} %"] for share in shares]
    return [_describe_change("CPU time that a hypervisor gave to other machines (steal)", *texts)]


def describe_tool_changes(a: tuple[str, str], b: tuple[str, str]) -> list[str]:
    """List how the version of this tool and the site differ: "site old -> new".

    `a` is (version, name of the site) of the earlier run; [] if both are equal.
    """
    found = zip(("dlperf_slurm", "site"), a, b)
    return [_describe_change(name, [x], [y]) for name, x, y in found if x != y]


def _describe_hosts(record: Record) -> dict[str, str]:
    """Return the values of each host fact, by name, joined with " and " over all hosts of a record.

    Facts that only identify a machine or device, such as `gpu_uuids`, are left out.
    """
    hosts = [record.platform, *({**record.platform, **host.facts} for host in record.hosts)]
    names = dict.fromkeys(name for facts in hosts for name in facts)
    return {
        name: " and ".join(_list_distinct(facts.get(name, "") for facts in hosts))
        for name in names
        if name not in NOT_COMPARED
    }


def _list_distinct(values: Iterable[object]) -> list[str]:
    """List the distinct values as text, sorted; an empty text becomes "none"."""
    return sorted({str(value) or "none" for value in values})


def _describe_change(name: str, a: Sequence[str], b: Sequence[str]) -> str:
    """Describe a change: "kernel 5.14 -> 6.4 and 6.5"."""
    return f"{name} {' and '.join(a)} -> {' and '.join(b)}"
