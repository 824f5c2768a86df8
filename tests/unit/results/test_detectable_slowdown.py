"""What a plan's repeats can tell is said from the spread of earlier runs, and cached."""

import re

import pytest
from outcome_builders import RATES, scale
from support.problems import assert_problem

from dlperf_slurm.config.folders import find_cache_dir
from dlperf_slurm.results import detectable_slowdown
from dlperf_slurm.results.detectable_slowdown import (
    POWERS,
    describe_power,
    get_power,
)


@pytest.mark.parametrize(
    ("case_id", "repeats", "says"),
    [
        # the rates' deviation is 0.66 %
        ("case0", 7, ("0.7 %", "2 earlier runs", "by 5 %", "probability of 100 %")),
        ("other", 7, ("without earlier runs", "vary by 1 %", "by 5 %")),
        ("case0", 3, ("too few", "6")),
    ],
)
def test_chance_of_a_slowdown_is_said_by_the_spread_of_earlier_runs(case_id, repeats, says):
    earlier = [("case0", RATES), ("case0", scale(RATES, 2)), ("case0", RATES[:1])]
    (line,) = describe_power({case_id: (repeats, "repeat")}, earlier)
    assert_problem(line, says=(f"{repeats} repeats", *says))


def test_interleaved_runs_have_the_power_of_the_paired_test():
    lines = [describe_power({"case": (6, "repeat")}, (), is_paired=one)[0] for one in (False, True)]
    assert ["interleaved" in line for line in lines] == [False, True]
    unpaired, paired = (
        float(re.search(r"vary by 3 %, .*? probability of (\d+) %", line)[1]) for line in lines
    )
    # with six repeats the paired test finds less
    assert paired < unpaired - 5


def test_each_number_of_repeats_has_a_line():
    lines = describe_power({"a": (7, "repeat"), "b": (3, "block"), "c": (7, "repeat")}, ())
    assert [line[:8] for line in lines] == ["7 repeat", "3 blocks"]


QUESTION = (7, 0.01, 0.05, 4, False)


@pytest.fixture
def simulations(monkeypatch):
    """Each simulation that was asked for; its answer is 0.9, and 0.02."""
    asked = []

    def answer(*numbers):
        asked.append(numbers)
        return 0.9

    monkeypatch.setattr(detectable_slowdown, "compute_power", answer)
    monkeypatch.setattr(detectable_slowdown, "compute_detectable_slowdown", lambda *numbers: 0.02)
    return asked


def test_other_numbers_are_another_question(simulations):
    for i, other in enumerate([8, 0.02, 0.04, 5, True]):
        get_power(*QUESTION[:i], other, *QUESTION[i + 1 :])
    assert [get_power(*QUESTION) for _ in range(2)] == [(0.9, 0.02)] * 2
    assert len(simulations) == 6
    assert simulations[-1] == QUESTION


def test_cache_does_not_grow_for_ever(simulations, monkeypatch):
    monkeypatch.setattr(detectable_slowdown, "MOST_RESULTS", 2)
    for repeats in (6, 7, 8):
        get_power(repeats, *QUESTION[1:])
    assert len(list((find_cache_dir() / POWERS).iterdir())) == 2
