"""Entries -> what each case measured from run to run, what changed, and what got slower."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Optional

from dlperf_slurm.results.compare import THROUGHPUT, Comparison, decide_all, measure_ratio
from dlperf_slurm.results.history.entries import Entry
from dlperf_slurm.results.labels import find_unit, list_axes
from dlperf_slurm.results.same_work import find_other_work, name_changes, name_tool_changes
from dlperf_slurm.results.significance import DEFAULT_MARGIN
from dlperf_slurm.stats.median import Interval, compute_median, compute_median_interval, find_median

# Figures of other machines are no measure. Versions are: they are what makes runs slower.
_MACHINE = (
    "case.device",
    "devices",
    "cpu_model",
    "gpu_models",
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_PARTITION",
)


@dataclass(frozen=True)
class Point:
    """A run of a case: its median with its interval, and how it compares with the run before it.

    `comparison` is with the last run before that has a figure, as B against A; None for the first
    one, and for a run without a figure.
    """

    entry: Entry
    median: Optional[float]
    interval: Optional[Interval]
    comparison: Optional[Comparison]


@dataclass(frozen=True)
class Timeline:
    """The runs of one case, in the order of their creation.

    `parameters` are the model's sizes, where the same case id stands for several.
    """

    case_id: str
    parameters: str
    unit: str
    points: tuple[Point, ...]

    @property
    def title(self) -> str:
        return f"{self.case_id} ({self.parameters})" if self.parameters else self.case_id


def drop_copies(entries: Iterable[Entry]) -> tuple[list[Entry], list[str]]:
    """A run that was copied counts once; each further copy is named."""
    first: dict[str, str] = {}
    kept, problems = [], []
    for entry in entries:
        run_dir = first.setdefault(entry.run_id, entry.run_dir)
        if run_dir == entry.run_dir:
            kept.append(entry)
        else:
            problems.append(f"{entry.run_dir}: left out, it is a copy of {run_dir}")
    return kept, list(dict.fromkeys(problems))


def select_entries(
    entries: Iterable[Entry], patterns: Sequence[str], frameworks: Sequence[str]
) -> list[Entry]:
    """Entries whose case id matches a pattern, and of these frameworks; all when none are named.

    A pattern without `*`, `?` and `[` may be any part of the id.
    """
    wanted = [p if any(sign in p for sign in "*?[") else f"*{p}*" for p in patterns]
    return [
        entry
        for entry in entries
        if (not wanted or any(fnmatchcase(entry.case_id, pattern) for pattern in wanted))
        and (not frameworks or entry.framework in frameworks)
    ]


def make_timelines(entries: Iterable[Entry]) -> tuple[Timeline, ...]:
    """One for each case and size of its model, ordered by case id.

    A run without a figure does not tell its sizes: it goes with the run before it, or after.
    """
    by_case: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: (entry.created_at, entry.run_id)):
        by_case.setdefault(entry.case_id, []).append(entry)
    timelines = []
    for case_id, runs in sorted(by_case.items()):
        groups = _group_by_parameters(runs)
        for parameters, group in groups.items():
            shown = _format_parameters(parameters) if len(groups) > 1 else ""
            points = _make_points(group)
            timelines.append(Timeline(case_id, shown, find_unit(group[0].model), points))
    return tuple(timelines)


def _group_by_parameters(runs: Sequence[Entry]) -> dict[str, list[Entry]]:
    last = next((run.parameters for run in runs if run.parameters), "")
    groups: dict[str, list[Entry]] = {}
    for run in runs:
        last = run.parameters or last
        groups.setdefault(last, []).append(run)
    return groups


def _format_parameters(parameters: str) -> str:
    sizes = json.loads(parameters or "{}")
    return ", ".join(f"{name} {value}" for name, value in sizes.items()) or "default sizes"


def _make_points(runs: Sequence[Entry]) -> tuple[Point, ...]:
    """Verdicts hold for all runs of the case together."""
    measured = [run for run in runs if run.samples_per_s]
    pairs = list(zip(measured, measured[1:]))
    decided = decide_all([compare_entries(a, b) for a, b in pairs], limit=None)
    found = {id(b): comparison for (_, b), comparison in zip(pairs, decided)}
    return tuple(
        Point(
            entry=run,
            median=find_median(run.samples_per_s),
            interval=compute_median_interval(run.samples_per_s),
            comparison=found.get(id(run)),
        )
        for run in runs
    )


def compare_entries(a: Entry, b: Entry) -> Comparison:
    """A comparison that is not decided yet; one of other work has a reason, and no ratio."""
    comparison = Comparison(
        **list_axes(b),
        case_id=b.case_id,
        model=b.model,
        quantity=THROUGHPUT,
        samples_a=a.samples_per_s,
        samples_b=b.samples_per_s,
        reason=find_other_work(a.work, b.work),
        changes=(*name_changes(a.surroundings, b.surroundings), *name_tool_changes(a, b)),
    )
    return comparison if comparison.reason else measure_ratio(comparison)


@dataclass(frozen=True)
class Guarded:
    """A case of the newest run against an earlier run, if there is one to hold it against."""

    reference: Optional[Entry]
    comparison: Comparison


def guard_newest(timelines: Sequence[Timeline], limit: float, window: int) -> tuple[Guarded, ...]:
    """Each case of the newest run, against the middle one of up to `window` runs before it.

    These did the same work on the same machine; of two in the middle it is the slower one. Cases
    that never ran before are left out. The verdicts hold for all cases together.
    """
    entries = [point.entry for timeline in timelines for point in timeline.points]
    newest = max(entries, key=lambda e: (e.created_at, e.run_id), default=None)
    guarded = []
    for timeline in timelines:
        *earlier, last = [point.entry for point in timeline.points]
        if earlier and newest is not None and last.run_id == newest.run_id:
            guarded.append(_compare_last(last, earlier, window))
    decided = decide_all([one.comparison for one in guarded], limit, limit or DEFAULT_MARGIN)
    return tuple(Guarded(one.reference, new) for one, new in zip(guarded, decided))


def _compare_last(last: Entry, earlier: Sequence[Entry], window: int) -> Guarded:
    if not last.samples_per_s:
        return Guarded(None, _refuse(last, f"no sound record: {last.problem}"))
    alike = [entry for entry in earlier if entry.samples_per_s and _is_alike(entry, last)]
    if not alike:
        return Guarded(None, _refuse(last, "no earlier run did the same work on the same machine"))
    ordered = sorted(alike[-window:], key=lambda entry: compute_median(entry.samples_per_s))
    reference = ordered[(len(ordered) - 1) // 2]
    return Guarded(reference, compare_entries(reference, last))


def _is_alike(entry: Entry, last: Entry) -> bool:
    return not find_other_work(entry.work, last.work) and all(
        entry.surroundings.get(name) == last.surroundings.get(name) for name in _MACHINE
    )


def _refuse(last: Entry, reason: str) -> Comparison:
    return Comparison(
        **list_axes(last),
        case_id=last.case_id,
        model=last.model,
        quantity=THROUGHPUT,
        reason=reason,
    )
