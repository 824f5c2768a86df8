"""A case's outcomes -> texts on what makes its figure doubtful, for the footnotes."""

from collections.abc import Iterator

from dlperf_slurm.collect import CaseOutcomes
from dlperf_slurm.statistics import find_coefficient_of_variation
from dlperf_slurm.step_series import STALL_FACTOR, find_drift, find_groups, find_stalls

# Seven repeats that vary by this much have an interval some 13 % wide (their extremes are 2.7
# standard deviations apart on average): wider than the differences that tables are read for.
MAX_VARIATION = 0.05
MIN_VARIED_SAMPLES = 3

# Slow swings of 3 % look like a drift of 2 % in one series of ten, and in most of three repeats
# almost never.
MIN_DRIFTING_SERIES = 3
MIN_DRIFT_OF_FEW = 0.05

# what stalls must take of a window to be named: as much as is worth naming elsewhere
MIN_STALLED_SHARE = 0.02


def describe_stability(outcomes: CaseOutcomes) -> list[str]:
    """None for a case whose steps and repeats are sound, or too few to tell."""
    series = [o.step_seconds for o in outcomes.outcomes if o.step_seconds]
    return [
        *_describe_drift([find_drift(steps) for steps in series]),
        *_describe_stalls(series),
        *_describe_spread(outcomes),
    ]


def _describe_drift(drifts: list[float]) -> Iterator[str]:
    """A case drifts if most of its repeats do, in one direction: noise has none."""
    smallest = 0.0 if len(drifts) >= MIN_DRIFTING_SERIES else MIN_DRIFT_OF_FEW
    for sign, cause in ((1, "the warm-up was too short"), (-1, "the machine slowed down")):
        found = sorted(abs(drift) for drift in drifts if sign * drift > smallest)
        if 2 * len(found) > len(drifts):
            longer = "longer" if sign > 0 else "less"
            yield (
                f"{cause}: in {len(found)} of {len(drifts)} repeats steps took up to "
                f"{found[-1]:.1%} {longer} than those of the window's second half"
            ).replace("%", " %")


def _describe_stalls(series: list[tuple[float, ...]]) -> Iterator[str]:
    stalls = [find_stalls(steps) for steps in series]
    found = [s for s in stalls if s.share >= MIN_STALLED_SHARE]
    if found:
        count = sum(s.count for s in found)
        steps = "1 step" if count == 1 else f"{count} steps"
        yield (
            f"stalled in {len(found)} of {len(series)} repeats: {steps} took over "
            f"{STALL_FACTOR:.0f} times the median, up to {max(s.worst_factor for s in found):.1f} "
            f"times, and cost up to {100 * max(s.share for s in found):.0f} % of a window"
        )


def _describe_spread(outcomes: CaseOutcomes) -> Iterator[str]:
    """Two groups of repeats, or else repeats that vary much."""
    samples = [record.samples_per_s for record in outcomes.records]
    groups = find_groups(samples)
    if groups is not None:
        low, high = groups
        yield (
            f"the repeats fell into two groups: {len(low)} at {low[0]:.2f} to {low[-1]:.2f}, "
            f"{len(high)} at {high[0]:.2f} to {high[-1]:.2f}; the median is of one of them"
        )
        return
    variation = find_coefficient_of_variation([1 / rate for rate in samples])
    if len(samples) >= MIN_VARIED_SAMPLES and variation > MAX_VARIATION:
        yield f"unstable: the repeats vary by {100 * variation:.0f} % (coefficient of variation)"
