"""A case's outcomes -> remarks on what makes its figure doubtful, for the footnotes."""

from collections.abc import Iterator, Sequence

from dlperf_slurm.contract.record import Record
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.footnotes import Note, Remark
from dlperf_slurm.stats.median import compute_coefficient_of_variation
from dlperf_slurm.stats.step_times import STALL_FACTOR, compute_drift, find_groups, find_stalls

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
MIN_STOLEN_SHARE = 0.02


def describe_stability(outcomes: CaseOutcomes) -> list[Note]:
    """None for a case whose steps and repeats are sound, or too few to tell."""
    series = [o.step_seconds for o in outcomes.outcomes if o.step_seconds]
    return [
        *_describe_drift([compute_drift(steps) for steps in series]),
        *_describe_stalls(series),
        *_describe_spread(outcomes),
        *_describe_stolen(outcomes.records),
    ]


def _describe_drift(drifts: list[float]) -> Iterator[Remark]:
    """A case drifts if most of its repeats do, in one direction: noise has none."""
    smallest = 0.0 if len(drifts) >= MIN_DRIFTING_SERIES else MIN_DRIFT_OF_FEW
    for sign, cause in ((1, "the warm-up was too short"), (-1, "the machine slowed down")):
        found = [abs(drift) for drift in drifts if sign * drift > smallest]
        if 2 * len(found) > len(drifts):
            longer = "longer" if sign > 0 else "less"
            yield Remark(
                f"{cause}: in {{}} of {{}} repeats steps took {longer} than those of the window's "
                "second half, in the worst by {:.1f} %",
                (len(found), len(drifts), 100 * max(found)),
            )


def _describe_stalls(series: list[tuple[float, ...]]) -> Iterator[Remark]:
    stalls = [find_stalls(steps) for steps in series]
    found = [s for s in stalls if s.share >= MIN_STALLED_SHARE]
    if found:
        yield Remark(
            f"stalled in {{}} of {{}} repeats: steps over {STALL_FACTOR:.0f} times the median "
            "({} of them, the longest {:.1f} times) cost {:.0f} % of the worst window",
            (
                len(found),
                len(series),
                sum(s.count for s in found),
                max(s.worst_factor for s in found),
                100 * max(s.share for s in found),
            ),
        )


def _describe_spread(outcomes: CaseOutcomes) -> Iterator[Note]:
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
    variation = compute_coefficient_of_variation([1 / rate for rate in samples])
    if len(samples) >= MIN_VARIED_SAMPLES and variation > MAX_VARIATION:
        yield Remark(
            "unstable: the repeats vary by {:.0f} % (coefficient of variation)", (100 * variation,)
        )


def _describe_stolen(records: Sequence[Record]) -> Iterator[Remark]:
    """A shared machine is as slow as its neighbours are busy."""
    shares = [record.stolen_share for record in records]
    found = [share for share in shares if share >= MIN_STOLEN_SHARE]
    if found:
        yield Remark(
            "a virtual machine on a shared host: in {} of {} repeats others took CPU time that was "
            "needed (steal), in the worst {:.0f} % of it",
            (len(found), len(shares), 100 * max(found)),
        )
