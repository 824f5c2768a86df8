"""Slow stretches, stalls and groups are found where they were put, and not in sound series."""

import random

import pytest
from outcome_builders import make_steps

from dlperf_slurm.stats.step_times import find_groups, find_slow_stretch, find_stalls, list_stalls


def find_cost(steps):
    stretch = find_slow_stretch(steps)
    return 0.0 if stretch is None else stretch.cost


def slow_down(steps, start, end, factor):
    return [s * (factor if start <= i < end else 1) for i, s in enumerate(steps)]


@pytest.mark.parametrize(
    ("count", "noise"), [(100, 0.02), *((count, 0.03) for count in (1, 2, 5, 10, 40))]
)
def test_steady_steps_have_no_slow_stretch(count, noise):
    assert {find_cost(make_steps(count, noise, seed)) for seed in range(100)} == {0.0}


@pytest.mark.parametrize(("memory", "noise"), [(0.9, 0.02), (0.8, 0.05), (0.9, 0.05)])
def test_slow_swings_of_a_sound_machine_rarely_look_like_a_slow_stretch(memory, noise):
    # deviations of 5 % that remember 0.9 of the step before looked like a drift in 21 % of series
    costs = [find_cost(make_steps(noise=noise, memory=memory, seed=seed)) for seed in range(300)]
    # 5 %: 15 of 300, and 26 is three deviations above
    assert sum(cost != 0 for cost in costs) <= 26


@pytest.mark.parametrize(
    ("start", "end", "factor"), [(90, 100, 1.3), (40, 60, 1.2), (0, 20, 1.2), (50, 100, 1.1)]
)
def test_slow_stretch_is_found_where_it_is(start, end, factor):
    for seed in range(50):
        steps = slow_down(make_steps(noise=0.02, memory=0.5, seed=seed), start, end, factor)
        stretch = find_slow_stretch(steps)
        assert stretch.excess == pytest.approx(factor - 1, abs=0.06)
        assert abs(stretch.start - start) <= 5
        assert abs(stretch.end - end) <= 5
        assert (stretch.is_first, stretch.is_last) == (start == 0, end == 100)


def test_slow_half_beside_as_much_noise_is_found_in_most_series():
    found = [
        find_cost(slow_down(make_steps(noise=0.05, memory=0.5, seed=seed), 0, 50, 1.1)) > 0
        for seed in range(100)
    ]
    # 72 of them; 47 with a limit that is higher by 1
    assert sum(found) >= 65


def test_fast_end_is_a_slow_beginning():
    stretch = find_slow_stretch(slow_down(make_steps(), 60, 100, 0.8))
    assert (stretch.start, stretch.end, stretch.is_first) == (0, 60, True)


@pytest.mark.parametrize(
    "steps", [slow_down(make_steps(noise=0.001), 0, 20, 1.05), slow_down(make_steps(), 30, 31, 30)]
)
def test_stretch_too_cheap_to_matter_and_a_stall_are_none(steps):
    assert find_slow_stretch(steps) is None


def test_long_first_steps_are_a_short_warmup_and_no_stall():
    steps = [1.0, 0.5, *make_steps(98)]
    # (1.0 + 0.5 + 98 * 0.1) / 100 over 0.1, less 1
    stretch = find_slow_stretch(steps)
    assert (stretch.start, stretch.end, stretch.cost) == (0, 2, pytest.approx(0.13, abs=0.01))
    assert find_stalls(steps).count == 0


def test_stalls_are_counted_with_what_they_cost():
    stalls = find_stalls([*[0.1] * 50, 0.5, *[0.1] * 46, 0.4, 0.1, 0.1])
    assert (stalls.count, stalls.worst_factor) == (2, pytest.approx(5.0))
    # 0.4 + 0.3 beyond the median, of 98 * 0.1 + 0.9
    assert stalls.share == pytest.approx(0.7 / 10.7)


@pytest.mark.parametrize("steps", [make_steps(noise=0.1), [1.0, 1.0, 3.0, 1.0]])
def test_steady_steps_and_one_of_three_medians_are_no_stall(steps):
    assert find_stalls(steps).count == 0


@pytest.mark.parametrize("steps", [[0.0] * 10, [0.0] * 9 + [1.0], [1.0] + [0.0] * 9])
def test_times_below_the_clock_say_nothing(steps):
    assert (find_stalls(steps).count, find_slow_stretch(steps)) == (0, None)


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


def test_stalls_are_listed_but_for_long_first_steps():
    assert list_stalls([9.0, 8.0, 1.0, 1.0, 1.0, 1.0, 7.0, 1.0]) == [6]
