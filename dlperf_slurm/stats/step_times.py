"""Step times, or values of repeats -> what makes them doubtful: drift, stalls, two groups."""

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

# a step that takes so many medians is a stall: data, network or another job held it up
STALL_FACTOR = 3.0

# The steps of the first fifth against those of the second half, in standard deviations of the
# rank-sum: one series in 370 exceeds it if steps are independent, which a larger effect makes up
# for (MIN_DRIFT). Below 25 steps it cannot be reached.
DRIFT_DEVIATIONS = 3.0

# The least drift that is named, as a ratio less 1: less than that is not worth naming elsewhere
# either, and slow swings of a sound machine stay below it.
MIN_DRIFT = 0.02

# A gap that separates two groups of repeats is so many times wider than either group. Of seven
# normal, uniform or exponential values 1 in 700, 1 in 185 and 1 in 140 have such a gap by chance;
# with fewer values it is common.
GROUP_GAP = 4.0
MIN_GROUP_GAP = 0.02
MIN_GROUPED_SAMPLES = 7


@dataclass(frozen=True)
class Stalls:
    """The steps that took over STALL_FACTOR medians.

    `worst_factor` is the longest one in medians. `share` is the part of the window, 0 to 1, that
    they took beyond a median each.
    """

    count: int
    worst_factor: float
    share: float


def find_stalls(step_seconds: Sequence[float]) -> Stalls:
    """The stalls among the steps of one rank: [step], in seconds.

    Steps as long at the very beginning are no stalls but warm-up, which `compute_drift` names.
    """
    median = statistics.median(step_seconds)
    steps = step_seconds[_count_first_long(step_seconds) :]
    stalled = [seconds for seconds in steps if seconds > STALL_FACTOR * median]
    if not stalled or median == 0:
        return Stalls(0, 0.0, 0.0)
    lost = sum(stalled) - len(stalled) * median
    return Stalls(len(stalled), max(stalled) / median, lost / sum(step_seconds))


def compute_drift(step_seconds: Sequence[float]) -> float:
    """The mean step of the whole over that of the second half, as a ratio less 1.

    A positive drift is a warm-up that was too short, a negative one a machine that slows down; it
    is 0 when the series shows neither. Stalls do not count, except at the very beginning.
    """
    limit = STALL_FACTOR * statistics.median(step_seconds)
    first_long = _count_first_long(step_seconds)
    steps = [s for i, s in enumerate(step_seconds) if i < first_long or s <= limit]
    first, rest = steps[: len(steps) // 5], steps[len(steps) // 2 :]
    if not first or statistics.fmean(rest) == 0:
        return 0.0
    drift = statistics.fmean(steps) / statistics.fmean(rest) - 1
    deviations = _compute_deviations(first, rest)
    is_clear = abs(deviations) >= DRIFT_DEVIATIONS and (drift > 0) == (deviations > 0)
    is_drift = abs(drift) >= MIN_DRIFT and (is_clear or first_long > 0)
    return drift if is_drift else 0.0


def _count_first_long(step_seconds: Sequence[float]) -> int:
    """The number of steps at the very beginning that are as long as stalls."""
    limit = STALL_FACTOR * statistics.median(step_seconds)
    return next((i for i, s in enumerate(step_seconds) if s <= limit), 0)


def _compute_deviations(first: Sequence[float], rest: Sequence[float]) -> float:
    """The distance of Mann and Whitney's U from its expectation, in standard deviations."""
    ordered = sorted(rest)
    above = sum(bisect_left(ordered, x) + bisect_right(ordered, x) for x in first) / 2
    pairs = len(first) * len(rest)
    variance = pairs * (len(first) + len(rest) + 1) / 12
    return float((above - pairs / 2) / variance**0.5)


def find_groups(samples: Sequence[float]) -> Optional[tuple[list[float], list[float]]]:
    """The lower and the higher group of repeats that fell into two; None when they did not.

    Each group has two values at least: a single one apart is no group.
    """
    ordered = sorted(samples)
    if len(ordered) < MIN_GROUPED_SAMPLES:
        return None
    split = max(range(2, len(ordered) - 1), key=lambda i: ordered[i] - ordered[i - 1])
    low, high = ordered[:split], ordered[split:]
    gap = high[0] - low[-1]
    width = max(low[-1] - low[0], high[-1] - high[0])
    is_split = gap >= GROUP_GAP * width and gap >= MIN_GROUP_GAP * statistics.median(ordered)
    return (low, high) if is_split else None
