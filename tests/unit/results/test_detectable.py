"""What a plan's repeats can tell is said from the spread of earlier runs."""

from builders import make_manifest
from outcome_builders import RATES, make_case_outcomes, scale
from support.problems import assert_problem

from dlperf_slurm.results.detectable import PlannedRepeats, describe_power
from dlperf_slurm.results.history.entries import make_entry


def make_earlier(tmp_path, count=2, site_name="tiny"):
    manifest = make_manifest(site_name=site_name)
    rates = [scale(RATES, 1 + number) for number in range(count)]
    return [make_entry(tmp_path, manifest, make_case_outcomes(one)) for one in rates]


def test_spread_of_earlier_runs_here_is_used(tmp_path):
    (line,) = describe_power([PlannedRepeats("case0", 7, "repeat")], "tiny", make_earlier(tmp_path))
    # the rates' deviation is 0.66 %
    says = ("7 repeats", "0.7 %", "2 earlier runs", "slowdown of 5 %", "100 times in 100")
    assert_problem(line, says=says)


def test_runs_elsewhere_do_not_count(tmp_path):
    (line,) = describe_power(
        [PlannedRepeats("case0", 7, "repeat")], "other", make_earlier(tmp_path)
    )
    assert_problem(line, says=("7 repeats", "no earlier runs", "vary by 1 %", "slowdown of 5 %"))


def test_too_few_repeats_say_how_many_it_takes():
    (line,) = describe_power([PlannedRepeats("case0", 3, "repeat")], "tiny", ())
    assert_problem(line, key="3 repeats", says=("too few", "6"))


def test_each_number_of_repeats_has_a_line():
    planned = [PlannedRepeats("a", 7, "repeat"), PlannedRepeats("b", 3, "block")]
    assert [line[:8] for line in describe_power(planned, "tiny", ())] == ["7 repeat", "3 blocks"]
