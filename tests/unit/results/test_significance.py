"""Pairs of samples -> verdicts that are wrong as rarely as the level says, and that find much."""

import math
import random
from statistics import median

import pytest

from dlperf_slurm.results.significance import (
    DEFAULT_MARGIN,
    EQUIVALENT,
    FASTER,
    SLOWER,
    UNDECIDED,
    decide,
)
from dlperf_slurm.stats.fligner_policello import compute_ratio_interval


def draw(generator, noise, factor=1.0):
    return [100 * factor * generator.lognormvariate(0, noise) for _ in range(7)]


def draw_blocks(generator):
    """Draw the medians of seven blocks of four repeats, which share a random offset."""
    return [
        median(100 * math.exp(offset + generator.gauss(0, 0.005)) for _ in range(4))
        for offset in [generator.gauss(0, 0.03) for _ in range(7)]
    ]


def decide_one(first, second, limit=None):
    (verdict,) = decide([(first, second)], limit, limit or DEFAULT_MARGIN)
    assert not (verdict.is_beyond_limit and verdict.is_within_limit)
    # what did not decide does not do so with as many
    assert verdict.deciding_repeats is None or verdict.deciding_repeats > len(first)
    return verdict


def is_different(verdict):
    return verdict.verdict in (SLOWER, FASTER)


# noise of A and B, true ratio, limit, pairs, what is counted, how often at least and at most: the
# latter is three deviations above the share that the level allows
CHANCES = {
    "same code in little noise": ((0.01, 0.01), 1.0, None, 400, is_different, 5, 28),
    "same code in much noise": ((0.03, 0.03), 1.0, None, 400, is_different, 5, 28),
    "B varies ten times as much": ((0.005, 0.05), 1.0, None, 400, is_different, 0, 33),
    "5 % slower": ((0.01, 0.01), 0.95, None, 200, lambda v: v.verdict == SLOWER, 198, 200),
    "by the margin": ((0.01, 0.01), 0.98, None, 300, lambda v: v.verdict == EQUIVALENT, 0, 26),
    "slower by the limit": ((0.02, 0.02), 0.97, 0.03, 400, lambda v: v.is_beyond_limit, 0, 16),
    "as slow passes": ((0.03, 0.03), 0.97, 0.03, 300, lambda v: v.is_within_limit, 0, 26),
    "slower passes": ((0.03, 0.03), 0.95, 0.03, 200, lambda v: v.is_within_limit, 0, 3),
    "as fast passes": ((0.01, 0.01), 1.0, 0.03, 200, lambda v: v.is_within_limit, 180, 200),
}


@pytest.mark.integration
@pytest.mark.parametrize("name", CHANCES)
def test_verdicts_are_wrong_as_rarely_as_the_level_says(name):
    (noise_a, noise_b), ratio, limit, count, is_counted, least, most = CHANCES[name]
    generator = random.Random(name)
    found = [
        decide_one(draw(generator, noise_a), draw(generator, noise_b, ratio), limit)
        for _ in range(count)
    ]
    assert least <= sum(map(is_counted, found)) <= most


@pytest.mark.integration
def test_offset_that_repeats_of_a_block_share_is_no_difference():
    generator = random.Random(2032)
    found = [decide_one(draw_blocks(generator), draw_blocks(generator)) for _ in range(200)]
    # 5 %: 10 of 200, and 20 is three deviations above; with repeats as the unit half of all differ
    assert sum(map(is_different, found)) <= 20


@pytest.mark.integration
def test_many_pairs_have_a_false_alarm_as_rarely_as_the_level_says():
    generator = random.Random(2021)
    alarms = 0
    for _ in range(100):
        pairs = [(draw(generator, 0.02), draw(generator, 0.02)) for _ in range(10)]
        alarms += any(map(is_different, decide(pairs, None, DEFAULT_MARGIN)))
    # at most 5 %: 5 of 100; 11 is three deviations above
    assert alarms <= 11


@pytest.mark.parametrize("limit", [None, 0.03])
def test_noise_that_hides_a_difference_says_how_many_repeats_it_takes(limit):
    generator = random.Random(2030)
    verdict = decide_one(draw(generator, 0.05), draw(generator, 0.05, 0.97), limit)
    assert (verdict.verdict, verdict.deciding_repeats > 7) == (UNDECIDED, True)


def test_pair_with_too_few_values_in_one_sample_is_undecided():
    generator = random.Random(2031)
    pair = draw(generator, 0.01), draw(generator, 0.01)[:5]
    (verdict,) = decide([pair], None, DEFAULT_MARGIN)
    assert (verdict.verdict, verdict.p_value) == (UNDECIDED, None)


@pytest.mark.integration
def test_beyond_the_limit_is_where_the_whole_interval_lies_below_it():
    generator = random.Random(2024)
    for _ in range(200):
        first, second = draw(generator, 0.01), draw(generator, 0.01, 0.955)
        is_below = compute_ratio_interval(first, second).high < 0.97
        assert decide_one(first, second, 0.03).is_beyond_limit is is_below
