"""Pairs of samples -> verdicts on their ratio: what is shown, and what it would take to show."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Optional

from dlperf_slurm.stats.median import CONFIDENCE, compute_median
from dlperf_slurm.stats.p_values import adjust_by_holm
from dlperf_slurm.stats.placements import compute_ratio_interval, compute_tails, count_needed_values
from dlperf_slurm.stats.power import MAX_REPEATS, count_deciding_repeats, measure_spread

FASTER = "faster"
SLOWER = "slower"
EQUIVALENT = "equivalent"
UNDECIDED = "undecided"
NOT_COMPARABLE = "not comparable"

# verdicts are wrong as rarely as intervals
SIGNIFICANCE = 1 - CONFIDENCE

# Two one-sided tests at 5 % are an interval of 90 %.
ONE_SIDED_CONFIDENCE = 1 - 2 * SIGNIFICANCE

# a difference that is not worth naming elsewhere either
DEFAULT_MARGIN = 0.02

Speeds = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True)
class Verdict:
    """What a comparison shows; the fields are those of `results.compare.Comparison`."""

    verdict: str
    p_value: Optional[float] = None
    is_within_margin: bool = False
    is_beyond_limit: bool = False
    is_within_limit: bool = False
    deciding_repeats: Optional[int] = None


@dataclass(frozen=True)
class _Evidence:
    """One pair of samples, with p-values that hold for all pairs together."""

    speeds: Speeds
    difference: float
    equivalence: float
    beyond: float


def decide(pairs: Sequence[Speeds], limit: Optional[float], margin: float) -> list[Verdict]:
    """A verdict for each pair of samples, second against first.

    Faster, slower and beyond the limit hold for all pairs together (Holm), and so does equivalent,
    which is shown by both one-sided tests (Schuirmann 1987). To be within the limit each pair has
    to show by itself: that all are is claimed only where every one does (Berger 1982). What has too
    few values to be decided even alone does not count among the tests.
    """
    needed = count_needed_values()
    tested = [i for i, speeds in enumerate(pairs) if min(map(len, speeds)) >= needed]
    speeds = [pairs[i] for i in tested]
    found = dict(zip(tested, _weigh(speeds, limit, margin)))
    return [
        _judge(found[i], limit, margin, len(tested))
        if i in found
        else Verdict(UNDECIDED, deciding_repeats=count_needed_values(tests=len(pairs)))
        for i in range(len(pairs))
    ]


def _weigh(pairs: Sequence[Speeds], limit: Optional[float], margin: float) -> list[_Evidence]:
    least, most = 1 - margin, 1 / (1 - margin)
    differences = adjust_by_holm([compute_tails(*speeds).two_sided for speeds in pairs])
    equivalences = adjust_by_holm(
        [
            max(compute_tails(*speeds, least).upper, compute_tails(*speeds, most).lower)
            for speeds in pairs
        ]
    )
    allowed = 1 - (limit or 0.0)
    beyond = adjust_by_holm(
        [min(1.0, 2 * compute_tails(*speeds, allowed).lower) for speeds in pairs]
    )
    return [_Evidence(*values) for values in zip(pairs, differences, equivalences, beyond)]


def _judge(found: _Evidence, limit: Optional[float], margin: float, tests: int) -> Verdict:
    interval = compute_ratio_interval(*found.speeds)
    narrower = compute_ratio_interval(*found.speeds, ONE_SIDED_CONFIDENCE)
    assert interval is not None, "the pairs are of enough values"
    assert narrower is not None, "the pairs are of enough values"
    is_different = found.difference <= SIGNIFICANCE and not interval.holds(1.0)
    is_within = (
        found.equivalence <= SIGNIFICANCE
        and narrower.low > 1 - margin
        and narrower.high < 1 / (1 - margin)
    )
    verdict = Verdict(
        EQUIVALENT if is_within else UNDECIDED,
        p_value=found.difference,
        is_within_margin=is_within,
    )
    if limit is not None:
        verdict = replace(
            verdict,
            is_beyond_limit=found.beyond <= SIGNIFICANCE and interval.high < 1 - limit,
            is_within_limit=narrower.low > 1 - limit,
        )
    if is_different:
        verdict = replace(verdict, verdict=SLOWER if interval.high < 1 else FASTER)
    must_ask = verdict.verdict == UNDECIDED or (
        limit is not None and not (verdict.is_beyond_limit or verdict.is_within_limit)
    )
    return _add_needed(verdict, found.speeds, limit, margin, tests) if must_ask else verdict


def _add_needed(
    verdict: Verdict, speeds: Speeds, limit: Optional[float], margin: float, tests: int
) -> Verdict:
    """The verdict with about how many repeats would decide, if the ratio stays as it is."""
    first, second = speeds
    ratio = math.log(compute_median(second) / compute_median(first))
    spreads = [measure_spread(sample) for sample in speeds]
    if limit is not None:
        # also of what is shown to be slower, but not by how much
        distances = [(abs(ratio - math.log1p(-limit)), SIGNIFICANCE)]
    else:
        distances = [
            (abs(ratio), SIGNIFICANCE / 2 / tests),
            (-math.log1p(-margin) - abs(ratio), SIGNIFICANCE / tests),
        ]
    found = [
        count_deciding_repeats(spreads, distance, significance)
        for distance, significance in distances
        if distance > 0
    ]
    least = max(count_needed_values(tests=tests), 1 + min(map(len, speeds)))
    count = max(min(found, default=MAX_REPEATS), least)
    return replace(verdict, deciding_repeats=count)
