"""The outcomes of a case -> warnings about unstable measurements, for the footnotes."""

from collections.abc import Iterator
from typing import Optional

from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.footnotes import FootnoteTemplate, Note
from dlperf_slurm.results.interference import describe_interference
from dlperf_slurm.results.provenance import describe_affinity, describe_isolation
from dlperf_slurm.stats.median import compute_coefficient_of_variation
from dlperf_slurm.stats.step_times import (
    STALL_FACTOR,
    SlowStretch,
    find_groups,
    find_slow_stretch,
    find_stalls,
)

# With this variation the interval of seven repeats is about 13 % wide (their extremes are 2.7
# standard deviations apart on average): wider than the differences of interest.
MAX_VARIATION = 0.05
MIN_VARIED_SAMPLES = 3

# Random drifts of 5 % look like a slow stretch in up to 1 of 20 series, but almost never in most
# of three repeats.
MIN_SLOWED_SERIES = 3
MIN_COST_OF_FEW = 0.05

# How far the ends of a window may be off: ranks leave a barrier at different times. A window is too
# short if that is more than this share of it.
WINDOW_END_SECONDS = 1e-4
MAX_WINDOW_ERROR = 0.01

# share of the window from which stalls are reported: the threshold of other warnings
MIN_STALLED_SHARE = 0.02


def describe_stability(outcomes: CaseOutcomes) -> list[Note]:
    """Return warnings about a case; [] if its steps and repeats are stable, or too few to judge."""
    series = [o.step_seconds for o in outcomes.outcomes if o.step_seconds]
    return [
        *_describe_short_windows(outcomes),
        *_describe_stretches([find_slow_stretch(steps) for steps in series]),
        *_describe_stalls(series),
        *_describe_spread(outcomes),
        *describe_interference(outcomes),
        *describe_affinity(outcomes.records),
        *describe_isolation(outcomes.records),
    ]


def _describe_short_windows(outcomes: CaseOutcomes) -> Iterator[FootnoteTemplate]:
    """Yield warnings on measured times too short for the clock, or shorter than requested."""
    own = [record for record in outcomes.records if record.case.log_format is None]
    shortest = min((record.window_seconds for record in own), default=1.0)
    if shortest * MAX_WINDOW_ERROR < WINDOW_END_SECONDS:
        yield FootnoteTemplate(
            "the measured steps lasted {:.2g} ms together, too short for the clock, which is off "
            f"by up to {1000 * WINDOW_END_SECONDS} ms; set min_measured_seconds in [protocol]",
            (1000 * shortest,),
        )
    for least in {record.case.min_measured_seconds for record in own}:
        if shortest < least:
            yield FootnoteTemplate(
                "the measured steps lasted {:.2f} s together, less than min_measured_seconds, {:g} "
                "s: the steps became faster after the warm-up, or the number of steps is at its "
                "maximum",
                (shortest, least),
            )


def _describe_stretches(stretches: list[Optional[SlowStretch]]) -> Iterator[FootnoteTemplate]:
    """Yield warnings on slow stretches of steps that most repeats have for the same cause.

    Others may be noise. `stretches` has the result of `find_slow_stretch` for each repeat.
    """
    least = 0.0 if len(stretches) >= MIN_SLOWED_SERIES else MIN_COST_OF_FEW
    found: dict[str, list[SlowStretch]] = {}
    for stretch in stretches:
        if stretch is not None and stretch.cost > least:
            cause = "the machine was slow for a while"
            if stretch.is_first:
                cause = "the warm-up was too short"
            elif stretch.is_last:
                cause = "the machine slowed down"
            found.setdefault(cause, []).append(stretch)
    for cause, slow in found.items():
        if 2 * len(slow) > len(stretches):
            worst = max(slow, key=lambda stretch: stretch.cost)
            counts = (len(slow), len(stretches), worst.start + 1, worst.end)
            yield FootnoteTemplate(
                f"{cause}: in {{}} of {{}} repeats; in the worst one, steps {{}} to {{}} took "
                "{:.0f} % longer than the other steps, which made the measured time {:.1f} % "
                "longer",
                (*counts, 100 * worst.excess, 100 * worst.cost),
            )


def _describe_stalls(series: list[tuple[float, ...]]) -> Iterator[FootnoteTemplate]:
    """Yield a warning on stalled steps, if they cost a repeat MIN_STALLED_SHARE of its time.

    `series` has the step times of each repeat.
    """
    stalls = [find_stalls(steps) for steps in series]
    found = [s for s in stalls if s.share >= MIN_STALLED_SHARE]
    if found:
        counts = (len(found), len(series), sum(s.count for s in found))
        worst = (max(s.worst_factor for s in found), 100 * max(s.share for s in found))
        yield FootnoteTemplate(
            f"stalls in {{}} of {{}} repeats: steps longer than {STALL_FACTOR:.0f} times the "
            "median step ({} of them, the longest {:.1f} times the median) cost {:.0f} % of the "
            "time of the worst repeat",
            (*counts, *worst),
        )


def _describe_spread(outcomes: CaseOutcomes) -> Iterator[Note]:
    """Yield a warning on repeats that form two groups, or vary by more than MAX_VARIATION."""
    samples = [record.samples_per_s for record in outcomes.records]
    groups = find_groups(samples)
    if groups is not None:
        low, high = groups
        yield (
            f"the repeats form two groups by throughput: {len(low)} at {low[0]:.2f} to "
            f"{low[-1]:.2f}, {len(high)} at {high[0]:.2f} to {high[-1]:.2f}; the median is in one "
            "of them"
        )
        return
    variation = compute_coefficient_of_variation([1 / rate for rate in samples])
    if len(samples) >= MIN_VARIED_SAMPLES and variation > MAX_VARIATION:
        yield FootnoteTemplate(
            "unstable: the repeats vary by {:.0f} % (coefficient of variation)", (100 * variation,)
        )
