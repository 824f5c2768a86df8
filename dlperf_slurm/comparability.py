"""Records of one case in two runs -> whether they are of the same work, and what else changed."""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from dlperf_slurm.collect import CaseOutcomes
from dlperf_slurm.contract import Record
from dlperf_slurm.run import Manifest

# With another of these it is other work, or on another number of devices. Case ids have most of
# them, but neither the sizes of the model, nor the steps, nor the batch size that a search found.
WORK = (
    "case.model",
    "case.model_parameters",
    "parameter_count",
    "case.framework",
    "case.nodes",
    "case.devices_per_node",
    "case.batch_size_per_device",
    "case.precision",
    "case.compiler",
    "case.memory_format",
    "case.distribution",
    "case.clip_global_norm",
    "case.mode",
    "case.source",
    "case.warmup_steps",
    "case.measured_steps",
)

# Why runs are compared at all, with versions and machine: named beside the verdict.
SURROUNDINGS = ("case.device", "case.cpus_per_rank", "case.seed", "case.source_rule", "clock.name")
JOB_VARIABLES = ("SLURM_CLUSTER_NAME", "SLURM_JOB_PARTITION")


def explain_absence(run_name: str, outcomes: CaseOutcomes) -> str:
    """Why a run has no figures of a case; empty when it has."""
    if outcomes.case.reason:
        return f"{run_name} did not run it: {outcomes.case.reason}"
    if outcomes.records:
        return ""
    return f"{run_name} has no sound record: {outcomes.outcomes[-1].problem}"


def find_other_work(a: Sequence[Record], b: Sequence[Record]) -> str:
    """Why records of one case_id are not of the same work; empty when they are."""
    differences = []
    for path in WORK:
        values_a, values_b = (_list_distinct(map(attrgetter(path), run)) for run in (a, b))
        # repeats of one run that differ among themselves are not comparable either
        if values_a != values_b or len(values_a) > 1:
            differences.append(_describe_change(path.rpartition(".")[2], values_a, values_b))
    return f"other work: {'; '.join(differences)}" if differences else ""


def name_changes(a: Sequence[Record], b: Sequence[Record]) -> list[str]:
    """Versions, machine and settings that are not the same in both runs."""
    facts_a, facts_b = ([_describe_surroundings(record) for record in run] for run in (a, b))
    changes = []
    for name in dict.fromkeys(name for facts in [*facts_a, *facts_b] for name in facts):
        values_a, values_b = (
            _list_distinct(facts.get(name, "") for facts in run) for run in (facts_a, facts_b)
        )
        if values_a != values_b:
            changes.append(_describe_change(name, values_a, values_b))
    return changes


def name_tool_changes(a: Manifest, b: Manifest) -> list[str]:
    """The code that measured, and the site file."""
    pairs = {
        "dlperf_slurm": [f"{run.tool_version} {run.tool_git}".strip() for run in (a, b)],
        "site": [a.site_name, b.site_name],
    }
    return [_describe_change(name, [x], [y]) for name, (x, y) in pairs.items() if x != y]


def _describe_surroundings(record: Record) -> dict[str, str]:
    return {
        **record.versions,
        "devices": ", ".join(sorted({rank.device_name for rank in record.ranks})),
        **record.platform,
        **{path: str(attrgetter(path)(record)) for path in SURROUNDINGS},
        **{name: record.job.get(name, "") for name in JOB_VARIABLES},
    }


def _list_distinct(values: Iterable[object]) -> list[str]:
    return sorted({str(value) or "none" for value in values})


def _describe_change(name: str, a: Sequence[str], b: Sequence[str]) -> str:
    return f"{name} {' and '.join(a)} -> {' and '.join(b)}"
