"""What makes a case's figure doubtful becomes a footnote; a sound case has none."""

import dataclasses
import re

import numpy
import pytest
from builders import make_case as make_worker_case
from builders import make_manifest, make_outcomes, make_planned_case, make_record
from outcome_builders import make_steps
from report_values import find_tables, read_marks, summarize
from support.problems import assert_problem

from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.stability import describe_stability

RATES = (100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8)


def make_case(series=(), rates=RATES, topology="1n1g") -> CaseOutcomes:
    """Make a case whose first repeats have these step times."""
    planned = make_planned_case(topology, repeats=len(rates))
    outcomes = list(make_outcomes(planned, rates).outcomes)
    for index, steps in enumerate(series):
        outcomes[index] = dataclasses.replace(
            outcomes[index], rank_step_seconds=numpy.array([steps])
        )
    return CaseOutcomes(planned, tuple(outcomes))


def make_series(change, count=7, changed=7):
    """Step times of repeats, of which the first ones are changed: step and its index -> step."""
    return [
        [change(step, i) if repeat < changed else step
         for i, step in enumerate(make_steps(seed=repeat))]
        for repeat in range(count)
    ]  # fmt: skip


def warm_up(step, index):
    return step * (1.5 if index < 20 else 1.0)


def throttle(step, index):
    return step * (1 + 0.002 * index)


def rest(step, index):
    return step * (1.2 if 40 <= index < 60 else 1)


def stall(step, index):
    return 10 * step if index == 50 else step


def list_stalls_of_a_long_case():
    """Step times of which one stall costs little."""
    series = [make_steps(1000, seed=repeat) for repeat in range(7)]
    series[0][500] *= 4
    return series


@pytest.mark.parametrize(
    "case",
    [
        make_case(make_series(lambda step, _: step)),
        make_case(),
        make_outcomes(make_planned_case(), (), ["failed: x"]),
        make_case(list_stalls_of_a_long_case()),
        # two repeats do not tell how much they vary
        make_case(rates=(80.0, 120.0)),
    ],
    ids=["sound", "no step times", "no record", "one short stall", "two repeats"],
)
def test_sound_case_has_no_footnote(case):
    assert describe_stability(case) == []


def test_short_warmup_is_named():
    (text,) = describe_stability(make_case(make_series(warm_up)))
    # 20 of 100 steps take half as much again: the window is 10 % longer
    assert_problem(text, key="the warm-up was too short", says=("7 of 7 repeats", "steps 1 to 20"))
    longer, window = (float(found) for found in re.findall(r"([\d.]+) %", str(text)))
    assert longer == pytest.approx(50.0, abs=4.0)
    assert window == pytest.approx(10.0, abs=1.0)


@pytest.mark.parametrize(
    ("change", "key", "says"),
    [
        (throttle, "the machine slowed down", ""),
        (lambda step, i: step * (1.3 if i >= 90 else 1), "the machine slowed down", "91 to 100"),
        (rest, "the machine was slow for a while", "41 to 60"),
    ],
)
def test_machine_that_is_slow_for_a_while_or_to_the_end_is_named(change, key, says):
    (text,) = describe_stability(make_case(make_series(change)))
    assert_problem(text, key=key, says=("7 of 7 repeats", f"steps {says}"))


@pytest.mark.parametrize(("changed", "is_named"), [(3, False), (4, True)])
def test_most_repeats_must_drift(changed, is_named):
    assert bool(describe_stability(make_case(make_series(warm_up, changed=changed)))) is is_named


@pytest.mark.parametrize(("factor", "is_named"), [(1.2, False), (1.5, True)])
def test_one_repeat_must_drift_more(factor, is_named):
    # 20 of 100 steps: 4 % or 10 % of the window
    series = make_series(lambda step, i: step * (factor if i < 20 else 1.0), count=1)
    assert bool(describe_stability(make_case(series, RATES[:1]))) is is_named


def test_stalls_of_any_repeat_are_named():
    (text,) = describe_stability(make_case(make_series(stall, changed=1)))
    # 9 medians beyond the 100 of the window
    says = ("3 times the median", "1 of them", "8 %")
    assert_problem(text, key="stalls in 1 of 7 repeats", says=says)


def test_repeats_in_two_groups_are_named():
    (text,) = describe_stability(make_case(rates=(100.0, 101.0, 80.0, 100.5, 80.5, 80.2, 99.8)))
    assert_problem(
        text, says=("two groups by throughput: 3 at 80.00 to 80.50, 4 at 99.80 to 101.00",)
    )


def test_repeats_that_vary_much_are_unstable():
    # times in proportion to 1/80, 1/90, ..., 1/120: mean 0.010207, deviation 0.001649
    (text,) = describe_stability(make_case(rates=(80.0, 90.0, 100.0, 110.0, 120.0)))
    assert_problem(text, key="unstable", says=("16 %",))


def test_cells_with_one_doubt_share_its_footnote():
    cases = [
        make_case(rates=(80.0, 90.0, 100.0, 110.0, 120.0)),
        make_case(rates=(190.0, 200.0, 210.0, 230.0), topology="1n2g"),
    ]
    summary = summarize(make_manifest(), cases)
    (table,) = find_tables(summary, "throughput")
    first, second = (set(read_marks(summary, row)) for row in table.rows)
    assert first & second
    # times in proportion to 1/190, 1/200, 1/210, 1/230: mean 0.0048433, deviation 0.0003888
    assert "unstable: the repeats vary by 8 to 16 % (coefficient of variation)" in summary.footnotes


@pytest.mark.parametrize(
    ("window_seconds", "least", "says"),
    [
        (0.0099, 0.0, "the measured steps lasted 9.9 ms together, too short for the clock"),
        (0.02, 0.5, "the measured steps lasted 0.02 s together, less than min_measured_seconds"),
        (0.02, 0.02, ""),
    ],
)
def test_window_that_is_too_short_is_noted(window_seconds, least, says):
    planned = make_planned_case("1n2g", repeats=1)
    record = make_record(make_worker_case(min_measured_seconds=least), window_seconds)
    outcome = Outcome(planned.case_id, 1, record, "")
    notes = describe_stability(CaseOutcomes(planned, (outcome,)))
    assert [str(note).startswith(says) for note in notes] == [True] * bool(says)
