"""Repeats of inference -> a case's latency, each percentile from as many batches as it takes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional

from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.stats.median import (
    LATENCY_PERCENTILES,
    Interval,
    Latency,
    compute_latency,
    compute_median_interval,
    count_needed_batches,
    find_median,
)

SLOWEST = LATENCY_PERCENTILES[-1]


@dataclass(frozen=True)
class CaseLatency:
    """Seconds of a batch over the repeats of a case: the mean, then each of LATENCY_PERCENTILES.

    `units` has of each the independent values that it is the median of: those of repeats, or of
    blocks; a single one, of all batches together, where a repeat has too few; none where all have.
    `notes` say of which this is so.
    """

    units: tuple[tuple[float, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[Optional[float], ...]:
        return tuple(map(find_median, self.units))

    @property
    def intervals(self) -> tuple[Optional[Interval], ...]:
        """What is known of each value; None where there are too few units."""
        return tuple(map(compute_median_interval, self.units))


class Timed(NamedTuple):
    """The times of one repeat, and the latency over them."""

    repeat: int
    seconds: Sequence[float]
    latency: Latency


def find_case_latency(outcomes: CaseOutcomes) -> Optional[CaseLatency]:
    """The latency over the sound repeats of a case; None in training."""
    timed = [Timed(o.repeat, o.batch_seconds, o.latency) for o in outcomes.outcomes if o.latency]
    return unite_latencies(outcomes, timed, "batches") if timed else None


def unite_latencies(outcomes: CaseOutcomes, timed: Sequence[Timed], what: str) -> CaseLatency:
    """The latency over repeats of a case, at least one; `what` they are the times of, for notes."""
    least = min(len(one.seconds) for one in timed)
    together = [seconds for one in timed for seconds in one.seconds]
    of_all = compute_latency(together).percentiles
    units = [outcomes.unite([(one.repeat, one.latency.mean) for one in timed])]
    pooled: list[int] = []
    missing: list[int] = []
    for place, percent in enumerate(LATENCY_PERCENTILES):
        needed = count_needed_batches(percent)
        # the slowest batch of a repeat may be below a percentile of all
        if least >= needed and not (pooled and percent == SLOWEST):
            values = [(one.repeat, one.latency.percentiles[place]) for one in timed]
            units.append(outcomes.unite(values))
        elif len(together) >= needed:
            pooled.append(percent)
            units.append((of_all[place],))
        else:
            missing.append(percent)
            units.append(())
    notes = []
    if pooled:
        notes.append(
            f"{_name(pooled)} over the {len(together)} {what} of all repeats together, without "
            f"interval: the {pooled[0]} % latency takes {count_needed_batches(pooled[0])}, and a "
            f"repeat has {least}"
        )
    if missing:
        needed_counts = _join(map(count_needed_batches, missing))
        notes.append(
            f"{_name(missing)} left out: {needed_counts} {what} are needed, and all repeats "
            f"together have {len(together)}"
        )
    return CaseLatency(tuple(units), tuple(notes))


def _name(percents: Sequence[int]) -> str:
    return f"latencies at {_join(percents)} %"


def _join(numbers: Iterable[int]) -> str:
    """Such as "90, 95 and 99"."""
    *others, last = map(str, numbers)
    return f"{', '.join(others)} and {last}" if others else last
