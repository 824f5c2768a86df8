"""Two runs' outcomes -> per case, how their speeds compare, and whether the difference is real."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Optional

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.jobs.run_directory import Manifest, PlannedCase
from dlperf_slurm.results.cases import name_case
from dlperf_slurm.results.collect import CaseOutcomes
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
from dlperf_slurm.stats.median import CONFIDENCE, Interval
from dlperf_slurm.stats.rank_sum import (
    Shift,
    compute_shifts,
    compute_smallest_p,
    count_needed_repeats,
)

FASTER = "faster"
SLOWER = "slower"
NO_DIFFERENCE = "no difference"
TOO_FEW_REPEATS = "too few repeats"
NOT_COMPARABLE = "not comparable"

THROUGHPUT = "throughput"
MEAN_LATENCY = "mean latency"

# verdicts are wrong as rarely as intervals
SIGNIFICANCE = 1 - CONFIDENCE


@dataclass(frozen=True)
class Comparison:
    """A quantity of one case in both runs; its samples by repeat, in samples/s or in seconds.

    `speed_ratio` is B's speed over A's, by the medians: below 1 B is slower, also for latencies.
    `interval` is that of this ratio alone; `p_value`, `verdict` and `is_beyond_limit` (B is slower
    by more than the limit) hold for all comparisons of the two runs together.
    `reason` says why there is no verdict on the speed, `changes` what else is not the same.
    """

    case_id: str
    model: str
    quantity: str
    samples_a: tuple[float, ...] = ()
    samples_b: tuple[float, ...] = ()
    speed_ratio: Optional[float] = None
    interval: Optional[Interval] = None
    p_value: Optional[float] = None
    verdict: str = NOT_COMPARABLE
    reason: str = ""
    changes: tuple[str, ...] = ()
    is_beyond_limit: bool = False

    @property
    def is_decided(self) -> bool:
        return self.verdict in (FASTER, SLOWER, NO_DIFFERENCE)

    @property
    def speeds(self) -> tuple[Sequence[float], Sequence[float]]:
        """Two samples whose ratio, second over first, is B's speed over A's."""
        if self.quantity == MEAN_LATENCY:
            return self.samples_b, self.samples_a
        return self.samples_a, self.samples_b


@dataclass(frozen=True)
class RunComparison:
    """Run B against run A; `limit` is the slowdown that is allowed, such as 0.03, if any is."""

    manifest_a: Manifest
    manifest_b: Manifest
    limit: Optional[float]
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
) -> RunComparison:
    """Every case of either run, in A's order, then what only B has."""
    ids_a = {name_case(c.case) for c in cases_a}
    by_id_b = {name_case(c.case): c for c in cases_b}
    only_b = [c for c in cases_b if name_case(c.case) not in ids_a]
    tools = name_tool_changes(manifest_a, manifest_b)
    found: list[Comparison] = []
    for outcomes in cases_a:
        found += _compare_case(outcomes, by_id_b.get(name_case(outcomes.case)), tools)
    found += [_refuse(c.case, "only in B", (), _list_samples(c, THROUGHPUT)) for c in only_b]
    return RunComparison(manifest_a, manifest_b, limit, tuple(decide_all(found, limit)))


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
    samples = samples_a, samples_b
    return Comparison(name_case(case), case.model, THROUGHPUT, *samples, reason=reason)


def _measure(
    a: CaseOutcomes, b: CaseOutcomes, quantity: str, changes: tuple[str, ...]
) -> Comparison:
    samples = _list_samples(a, quantity), _list_samples(b, quantity)
    case_id, model = name_case(a.case), a.case.model
    return measure_ratio(Comparison(case_id, model, quantity, *samples, changes=changes))


def measure_ratio(comparison: Comparison) -> Comparison:
    """With the ratio of its samples and that one's interval, and no verdict yet."""
    first, second = comparison.speeds
    ratio = take_ratio(first, second)
    return replace(comparison, speed_ratio=ratio.value, interval=ratio.interval)


def _list_samples(outcomes: CaseOutcomes, quantity: str) -> tuple[float, ...]:
    """One value per sound repeat."""
    if quantity == THROUGHPUT:
        return tuple(record.samples_per_s for record in outcomes.records)
    return tuple(statistics.fmean(o.batch_seconds) for o in outcomes.outcomes if o.record)


def decide_all(found: Sequence[Comparison], limit: Optional[float]) -> list[Comparison]:
    """Verdicts that are all right together with the confidence, whatever the cases have in common.

    What has too few repeats to be decided even alone does not count among the tests.
    """
    measured = [i for i, c in enumerate(found) if c.speed_ratio is not None]
    tested = [i for i in measured if _find_smallest_p(found[i]) <= SIGNIFICANCE]
    speeds = [found[i].speeds for i in tested]
    shifts = dict(zip(tested, compute_shifts(speeds)))
    slowed = [(_slow_down(first, limit or 0.0), second) for first, second in speeds]
    shifts_beyond = dict(zip(tested, compute_shifts(slowed)))
    decided = list(found)
    for i in measured:
        if i in shifts:
            is_beyond = limit is not None and shifts_beyond[i].is_lower_at(SIGNIFICANCE)
            decided[i] = _judge(found[i], shifts[i], is_beyond, len(tested))
        else:
            decided[i] = replace(found[i], verdict=TOO_FEW_REPEATS)
        if decided[i].verdict == TOO_FEW_REPEATS:
            decided[i] = replace(decided[i], reason=_explain_too_few(found[i], len(measured)))
    return decided


def _find_smallest_p(comparison: Comparison) -> float:
    return compute_smallest_p(len(comparison.samples_a), len(comparison.samples_b))


def _slow_down(speeds: Sequence[float], limit: float) -> list[float]:
    """As slow as is allowed: what is slower still is beyond the limit."""
    return [(1 - limit) * speed for speed in speeds]


def _judge(comparison: Comparison, shift: Shift, is_beyond: bool, tests: int) -> Comparison:
    if shift.p_value <= SIGNIFICANCE:
        verdict = SLOWER if shift.is_lower else FASTER
    elif tests * _find_smallest_p(comparison) > SIGNIFICANCE:
        verdict = TOO_FEW_REPEATS
    else:
        verdict = NO_DIFFERENCE
    return replace(comparison, p_value=shift.p_value, verdict=verdict, is_beyond_limit=is_beyond)


def _explain_too_few(comparison: Comparison, tests: int) -> str:
    counts = f"{len(comparison.samples_a)} and {len(comparison.samples_b)} repeats"
    return f"{counts}; it takes {count_needed_repeats(tests)} in each run to tell any difference"
