"""Drift, stalls and groups are found where they were put, and not in sound series."""

import math
import random

import pytest
from outcome_builders import make_steps

from dlperf_slurm.stats.step_times import compute_drift, find_groups, find_stalls


def test_steady_steps_do_not_drift():
    assert [compute_drift(make_steps(seed=seed)) for seed in range(200)] == [0.0] * 200


@pytest.mark.parametrize("count", [1, 2, 5, 10, 40])
def test_short_series_do_not_drift(count):
    assert [compute_drift(make_steps(count, 0.03, seed)) for seed in range(50)] == [0.0] * 50


def test_slow_swings_of_a_sound_machine_rarely_look_like_a_drift():
    drifts = [compute_drift(make_steps(noise=0.02, memory=0.9, seed=seed)) for seed in range(300)]
    assert sum(drift != 0 for drift in drifts) <= 9


def test_short_warmup_is_a_drift_of_what_it_cost():
    steps = [s * (1 + 0.5 * math.exp(-i / 10)) for i, s in enumerate(make_steps())]
    # 0.5 * sum of exp(-i / 10) over 100 steps = 0.0525, less what the second half has of it, 0.0007
    assert compute_drift(steps) == pytest.approx(0.052, abs=0.01)


def test_slower_and_slower_steps_are_a_negative_drift():
    steps = [s * (1 + 0.002 * i) for i, s in enumerate(make_steps())]
    # means 1.099 and 1.149
    assert compute_drift(steps) == pytest.approx(1.099 / 1.149 - 1, abs=0.01)


def test_drift_too_small_to_matter_is_none():
    steps = [s * (1 + 0.02 * (i < 20)) for i, s in enumerate(make_steps(noise=0.001))]
    assert compute_drift(steps) == 0.0


@pytest.mark.parametrize(("higher", "drift"), [(2, 26.27 / 25 / (13.12 / 13) - 1), (3, 0.0)])
def test_drift_takes_three_deviations_of_the_rank_sum(higher, drift):
    # The first 5 of 25 against the last 13 are 65 pairs; U has the deviation 10.145 about 32.5,
    # sqrt(65 * 19 / 12). All but 2 pairs are (63 - 32.5) / 10.145 = 3.006 deviations, all but 3
    # are 2.908.
    rest = [1.0] * (13 - higher) + [1.06] * higher
    assert compute_drift([1.1] * 4 + [1.05] + [1.1] * 7 + rest) == pytest.approx(drift)


def test_stall_in_the_first_half_is_no_drift():
    steps = make_steps()
    steps[30] = 3.0
    assert compute_drift(steps) == 0.0


def test_long_first_steps_are_a_short_warmup():
    steps = [1.0, 0.5, *make_steps(98)]
    # (1.0 + 0.5 + 98 * 0.1) / 100 over 0.1, less 1
    assert compute_drift(steps) == pytest.approx(0.13, abs=0.01)


def test_long_first_steps_are_no_stall():
    assert find_stalls([1.0, 0.5, *make_steps(98)]).count == 0


def test_steady_steps_have_no_stall():
    assert find_stalls(make_steps(noise=0.1)).count == 0


def test_stalls_are_counted_with_what_they_cost():
    stalls = find_stalls([*[0.1] * 50, 0.5, *[0.1] * 46, 0.4, 0.1, 0.1])
    assert (stalls.count, stalls.worst_factor) == (2, pytest.approx(5.0))
    # 0.4 + 0.3 beyond the median, of 98 * 0.1 + 0.9
    assert stalls.share == pytest.approx(0.7 / 10.7)


def test_step_of_three_medians_is_no_stall_yet():
    assert find_stalls([1.0, 1.0, 3.0, 1.0]).count == 0


@pytest.mark.parametrize("steps", [[0.0] * 10, [0.0] * 9 + [1.0], [1.0] + [0.0] * 9])
def test_times_below_the_clock_say_nothing(steps):
    assert (find_stalls(steps).count, compute_drift(steps)) == (0, 0.0)


def test_two_groups_are_told_apart():
    assert find_groups([10.0, 20.1, 10.2, 20.0, 10.1, 20.2, 10.3]) == (
        [10.0, 10.1, 10.2, 10.3], [20.0, 20.1, 20.2],
    )  # fmt: skip


@pytest.mark.parametrize(
    "samples",
    [
        [10.0, 10.1, 10.2, 10.3, 10.4, 10.5, 20.0],
        [10.0, 10.0, 10.0, 10.0, 10.01, 10.01, 10.01],
        [10.0, 10.1, 20.0, 20.1, 10.0, 20.0],
        [10.0] * 7,
        [],
    ],
    ids=["one apart", "gap that does not matter", "six values", "all equal", "none"],
)
def test_these_are_no_groups(samples):
    assert find_groups(samples) is None


@pytest.mark.parametrize("count", [7, 10, 20])
def test_noise_rarely_falls_into_groups(count):
    generator = random.Random(count)
    found = sum(
        find_groups([100 * generator.lognormvariate(0, 0.05) for _ in range(count)]) is not None
        for _ in range(2000)
    )
    assert found <= 6
