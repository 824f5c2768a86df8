"""What a plan's repeats can tell is said from the spread of earlier runs."""

import re

import pytest
from outcome_builders import RATES, scale
from support.problems import assert_problem

from dlperf_slurm.results.detectable_slowdown import PlannedRepeats, describe_power


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
    (line,) = describe_power([PlannedRepeats(case_id, repeats, "repeat")], earlier)
    assert_problem(line, says=(f"{repeats} repeats", *says))


def test_interleaved_runs_have_the_power_of_the_paired_test():
    lines = [
        describe_power([PlannedRepeats("case", 6, "repeat")], (), is_paired=one)[0]
        for one in (False, True)
    ]
    assert ["interleaved" in line for line in lines] == [False, True]
    unpaired, paired = (
        float(re.search(r"vary by 3 %, .*? probability of (\d+) %", line)[1]) for line in lines
    )
    # with six repeats the paired test finds less
    assert paired < unpaired - 5


def test_each_number_of_repeats_has_a_line():
    planned = [PlannedRepeats("a", 7, "repeat"), PlannedRepeats("b", 3, "block")]
    assert [line[:8] for line in describe_power(planned, ())] == ["7 repeat", "3 blocks"]
