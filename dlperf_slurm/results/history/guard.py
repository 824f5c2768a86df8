"""Timelines and the slowdown that is allowed -> whether the newest run keeps to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm.results.compare import THROUGHPUT, Comparison, decide_all
from dlperf_slurm.results.history.entries import Entry
from dlperf_slurm.results.history.timeline import Timeline, compare_entries
from dlperf_slurm.results.same_work import find_other_work
from dlperf_slurm.stats.median import find_median

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
    decided = decide_all([one.comparison for one in guarded], limit)
    return tuple(Guarded(one.reference, new) for one, new in zip(guarded, decided))


def _compare_last(last: Entry, earlier: Sequence[Entry], window: int) -> Guarded:
    if not last.samples_per_s:
        return Guarded(None, _refuse(last, f"no sound record: {last.problem}"))
    alike = [entry for entry in earlier if entry.samples_per_s and _is_alike(entry, last)]
    if not alike:
        return Guarded(None, _refuse(last, "no earlier run did the same work on the same machine"))
    ordered = sorted(alike[-window:], key=lambda entry: find_median(entry.samples_per_s))
    reference = ordered[(len(ordered) - 1) // 2]
    return Guarded(reference, compare_entries(reference, last))


def _is_alike(entry: Entry, last: Entry) -> bool:
    return not find_other_work(entry.work, last.work) and all(
        entry.surroundings.get(name) == last.surroundings.get(name) for name in _MACHINE
    )


def _refuse(last: Entry, reason: str) -> Comparison:
    return Comparison(last.case_id, last.model, THROUGHPUT, reason=reason)
