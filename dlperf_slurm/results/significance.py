"""Pairs of samples -> verdicts on their ratio, and the repeats needed for a verdict."""

import math
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple, Optional

from dlperf_slurm.stats import fligner_policello, signed_rank
from dlperf_slurm.stats.median import CONFIDENCE, compute_median
from dlperf_slurm.stats.multiple_testing import adjust_by_holm
from dlperf_slurm.stats.power import MAX_REPEATS, count_deciding_repeats, measure_spread

FASTER = "faster"
SLOWER = "slower"
EQUIVALENT = "equivalent"
UNDECIDED = "undecided"
NOT_COMPARABLE = "not comparable"

# the error rate of verdicts equals that of intervals
SIGNIFICANCE = 1 - CONFIDENCE

# two one-sided tests at 5 % correspond to a 90 % interval
ONE_SIDED_CONFIDENCE = 1 - 2 * SIGNIFICANCE

# differences below this are not reported elsewhere either
DEFAULT_MARGIN = 0.02

Speeds = tuple[Sequence[float], Sequence[float]]


class Verdict(NamedTuple):
    """The result of the tests on a pair of samples; `compare.decide_pairs` describes the fields."""

    verdict: str
    p_value: Optional[float] = None
    is_within_margin: bool = False
    is_beyond_limit: bool = False
    is_within_limit: bool = False
    deciding_repeats: Optional[int] = None


def decide(
    pairs: Sequence[Speeds], limit: Optional[float], margin: float, is_paired: bool = False
) -> list[Verdict]:
    """Return a verdict for each pair of samples, on the second sample's speed against the first's.

    With `is_paired`, value i of the first sample belongs to value i of the second. `limit` (None:
    no limit) and `margin` are fractions, such as 0.02.

    Faster, slower, slower than the `limit` allows and equivalent within `margin` (two one-sided
    tests, Schuirmann 1987) are adjusted for all pairs (Holm). Within the limit is tested for each
    pair without adjustment, because the claim that all pairs are needs every test to succeed
    (intersection-union, Berger 1982). Pairs with too few values for any verdict do not count as
    tests.
    """
    test = choose_test(is_paired)
    needed = test.count_needed_values()
    tested = [i for i, speeds in enumerate(pairs) if min(map(len, speeds)) >= needed]
    known = [pairs[i] for i in tested]
    # three p-values of each pair, each adjusted for all pairs, against the hypotheses: B is as fast
    # as A; B differs by the margin or more; B is slower by at most the limit
    differences = adjust_by_holm([test.compute_tails(*speeds).two_sided for speeds in known])
    least, most = 1 - margin, 1 / (1 - margin)
    equivalences = adjust_by_holm(
        [
            max(test.compute_tails(*speeds, least).upper, test.compute_tails(*speeds, most).lower)
            for speeds in known
        ]
    )
    allowed = 1 - (limit or 0.0)
    beyond = adjust_by_holm(
        [min(1.0, 2 * test.compute_tails(*speeds, allowed).lower) for speeds in known]
    )
    too_few = Verdict(UNDECIDED, deciding_repeats=test.count_needed_values(tests=len(pairs)))
    verdicts = [too_few] * len(pairs)
    for i, p_values in zip(tested, zip(differences, equivalences, beyond)):
        verdicts[i] = _make_verdict(pairs[i], *p_values, limit, margin, len(tested), test)
    return verdicts


def choose_test(is_paired: bool) -> ModuleType:
    """Return the module of the test: for pairs, or for two independent samples."""
    return signed_rank if is_paired else fligner_policello


def _make_verdict(
    speeds: Speeds,
    difference: float,
    equivalence: float,
    beyond: float,
    limit: Optional[float],
    margin: float,
    tests: int,
    test: ModuleType,
) -> Verdict:
    """Decide whether run B of a pair is slower, faster, equivalent or undecided.

    `difference`, `equivalence` and `beyond` are adjusted p-values against three hypotheses: the
    speeds are equal, they differ by more than `margin`, B is slower by at most `limit` (None for no
    limit). `tests` is the number of pairs with enough values, `test` the module of the test.
    """
    interval = test.compute_ratio_interval(*speeds)
    narrower = test.compute_ratio_interval(*speeds, ONE_SIDED_CONFIDENCE)
    assert interval is not None, "the pair has too few values for an interval"
    assert narrower is not None, "the pair has too few values for an interval"
    is_different = difference <= SIGNIFICANCE and not interval.holds(1.0)
    is_within = (
        equivalence <= SIGNIFICANCE
        and narrower.low > 1 - margin
        and narrower.high < 1 / (1 - margin)
    )
    verdict = EQUIVALENT if is_within else UNDECIDED
    if is_different:
        verdict = SLOWER if interval.high < 1 else FASTER
    is_beyond = limit is not None and beyond <= SIGNIFICANCE and interval.high < 1 - limit
    is_allowed = limit is not None and narrower.low > 1 - limit
    must_ask = verdict == UNDECIDED or (limit is not None and not (is_beyond or is_allowed))
    count = _count_deciding(speeds, limit, margin, tests, test) if must_ask else None
    return Verdict(verdict, difference, is_within, is_beyond, is_allowed, count)


def _count_deciding(
    speeds: Speeds, limit: Optional[float], margin: float, tests: int, test: ModuleType
) -> int:
    """Estimate how many repeats per run would decide, if ratio and spread stay as observed.

    To decide is to show on which side of `limit` the ratio is or, if that is None, that the speeds
    differ or are equivalent within `margin`. `tests` is the number of pairs tested together, `test`
    the module of the test.
    """
    first, second = speeds
    if test is signed_rank:
        ratios = [b / a for a, b in zip(first, second)]
        ratio, spreads = math.log(compute_median(ratios)), [measure_spread(ratios)]
    else:
        ratio = math.log(compute_median(second) / compute_median(first))
        spreads = [measure_spread(sample) for sample in speeds]
    if limit is not None:
        # only the limit counts, even if the second run is already shown to be slower
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
    least: int = max(test.count_needed_values(tests=tests), 1 + min(map(len, speeds)))
    return max(min(found, default=MAX_REPEATS), least)
