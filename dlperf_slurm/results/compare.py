"""Two runs' outcomes -> per case, how their speeds compare, and whether the difference is real."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Optional

from dlperf_slurm.contract.axes import INFER, Axes
from dlperf_slurm.jobs.manifest import Manifest, PlannedCase
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.labels import list_axes
from dlperf_slurm.results.ratios import take_ratio
from dlperf_slurm.results.same_work import (
    explain_absence,
    find_other_work,
    list_surroundings,
    list_work,
    name_changes,
    name_stolen_time,
    name_tool_changes,
)
from dlperf_slurm.results.significance import DEFAULT_MARGIN, NOT_COMPARABLE, decide
from dlperf_slurm.stats.median import Interval
from dlperf_slurm.stats.power import MAX_REPEATS

THROUGHPUT = "throughput"
MEAN_LATENCY = "mean latency"


@dataclass(frozen=True)
class Comparison(Axes):
    """A quantity of one case in both runs; its samples by repeat, in samples/s or in seconds.

    On the axes it stands as it was planned, in A if it is there.
    `speed_ratio` is B's speed over A's, by the medians: below 1 B is slower, also for latencies.
    `interval` is that of this ratio alone; `p_value`, `verdict` and `is_beyond_limit` (B is slower
    by more than the limit) hold for all comparisons of the two runs together, `is_within_limit` (B
    is not) for this one. `is_within_margin` is of a difference that is too small to matter.
    `reason` says why there is no verdict on the speed, or what it would take; `deciding_repeats`
    are about as many in each run. The samples are medians of blocks where `unit` says so.
    `changes` says what else is not the same.
    """

    case_id: str = ""
    model: str = ""
    quantity: str = THROUGHPUT
    samples_a: tuple[float, ...] = ()
    samples_b: tuple[float, ...] = ()
    speed_ratio: Optional[float] = None
    interval: Optional[Interval] = None
    p_value: Optional[float] = None
    verdict: str = NOT_COMPARABLE
    reason: str = ""
    changes: tuple[str, ...] = ()
    is_within_margin: bool = False
    is_beyond_limit: bool = False
    is_within_limit: bool = False
    deciding_repeats: Optional[int] = None
    unit: str = "repeats"

    @property
    def speeds(self) -> tuple[Sequence[float], Sequence[float]]:
        """Two samples whose ratio, second over first, is B's speed over A's."""
        if self.quantity == MEAN_LATENCY:
            return self.samples_b, self.samples_a
        return self.samples_a, self.samples_b


@dataclass(frozen=True)
class RunComparison:
    """Run B against run A; `limit` is the slowdown that is allowed, such as 0.03, if any is.

    Differences within the `margin`, such as 0.02, do not matter.
    """

    manifest_a: Manifest
    manifest_b: Manifest
    limit: Optional[float]
    margin: float
    comparisons: tuple[Comparison, ...]

    @property
    def test_count(self) -> int:
        """How many comparisons the verdicts are adjusted for."""
        return sum(c.p_value is not None for c in self.comparisons)


def compare_runs(
    manifest_a: Manifest,
    cases_a: Sequence[CaseOutcomes],
    manifest_b: Manifest,
    cases_b: Sequence[CaseOutcomes],
    limit: Optional[float] = None,
    margin: Optional[float] = None,
) -> RunComparison:
    """Every case of either run, in A's order, then what only B has.

    The margin is the limit, where it is not said, and DEFAULT_MARGIN without either.
    """
    margin = margin or limit or DEFAULT_MARGIN
    ids_a = {c.case.case_id for c in cases_a}
    by_id_b = {c.case.case_id: c for c in cases_b}
    only_b = [c for c in cases_b if c.case.case_id not in ids_a]
    tools = name_tool_changes(manifest_a, manifest_b)
    found: list[Comparison] = []
    for outcomes in cases_a:
        found += _compare_case(outcomes, by_id_b.get(outcomes.case.case_id), tools)
    found += [_refuse(c.case, "only in B", (), _list_samples(c, THROUGHPUT)) for c in only_b]
    decided = tuple(decide_all(found, limit, margin))
    return RunComparison(manifest_a, manifest_b, limit, margin, decided)


def _compare_case(
    a: CaseOutcomes, b: Optional[CaseOutcomes], tools: Sequence[str]
) -> list[Comparison]:
    """The case's quantities, not decided yet; or its throughputs, and why they say nothing."""
    rates_a = _list_samples(a, THROUGHPUT)
    if b is None:
        return [_refuse(a.case, "only in A", rates_a, ())]
    reason = explain_absence("A", a) or explain_absence("B", b)
    reason = reason or find_other_work(list_work(a.records), list_work(b.records))
    if reason:
        return [_refuse(a.case, reason, rates_a, _list_samples(b, THROUGHPUT))]
    surroundings = (list_surroundings(a.records), list_surroundings(b.records))
    stolen = name_stolen_time(a.records, b.records)
    changes = (*tools, *name_changes(*surroundings), *stolen)
    is_inference = a.records[0].case.axes.mode == INFER
    return [
        _measure(a, b, quantity, changes)
        for quantity in (THROUGHPUT, *([MEAN_LATENCY] if is_inference else []))
    ]


def _refuse(
    case: PlannedCase, reason: str, samples_a: tuple[float, ...], samples_b: tuple[float, ...]
) -> Comparison:
    return Comparison(
        **list_axes(case.axes),
        case_id=case.case_id,
        model=case.model,
        quantity=THROUGHPUT,
        samples_a=samples_a,
        samples_b=samples_b,
        reason=reason,
    )


def _measure(
    a: CaseOutcomes, b: CaseOutcomes, quantity: str, changes: tuple[str, ...]
) -> Comparison:
    comparison = Comparison(
        **list_axes(a.case.axes),
        case_id=a.case.case_id,
        model=a.case.model,
        quantity=quantity,
        samples_a=_list_samples(a, quantity),
        samples_b=_list_samples(b, quantity),
        changes=changes,
        unit="blocks" if a.has_blocks and b.has_blocks else "repeats",
    )
    return measure_ratio(comparison)


def measure_ratio(comparison: Comparison) -> Comparison:
    """The comparison with the ratio of its samples and its interval, and no verdict yet."""
    first, second = comparison.speeds
    ratio = take_ratio(first, second)
    return replace(comparison, speed_ratio=ratio.value, interval=ratio.interval)


def _list_samples(outcomes: CaseOutcomes, quantity: str) -> tuple[float, ...]:
    """One value per sound repeat, or per block where these are spread over blocks."""
    if quantity == THROUGHPUT:
        return outcomes.units
    return outcomes.unite(
        [(o.repeat, statistics.fmean(o.batch_seconds)) for o in outcomes.outcomes if o.record]
    )


def decide_all(
    found: Sequence[Comparison], limit: Optional[float], margin: float = DEFAULT_MARGIN
) -> list[Comparison]:
    """The comparisons with verdicts, which all hold together with the confidence."""
    measured = [i for i, c in enumerate(found) if c.speed_ratio is not None]
    verdicts = decide([found[i].speeds for i in measured], limit, margin)
    decided = list(found)
    for i, verdict in zip(measured, verdicts):
        decided[i] = _explain(replace(found[i], **vars(verdict)), limit)
    return decided


def _explain(comparison: Comparison, limit: Optional[float]) -> Comparison:
    """The comparison with what it would take to decide, where it is undecided."""
    count = comparison.deciding_repeats
    if count is None:
        return comparison
    if comparison.p_value is None:
        what = f"it takes {count} in each run to tell any difference"
    else:
        shown = f"more than {MAX_REPEATS}" if count >= MAX_REPEATS else f"about {count}"
        end = "decide" if limit is None else "tell whether it is beyond the limit"
        what = f"{shown} in each run would {end}, if they go on so"
    counts = f"{len(comparison.samples_a)} and {len(comparison.samples_b)} {comparison.unit}"
    return replace(comparison, reason=f"{counts}; {what}")
