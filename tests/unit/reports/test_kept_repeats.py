"""What is kept of a case's repeats comes back with the step times of the file, and nothing else."""

from dataclasses import replace

import numpy
import pytest
from builders import make_outcomes, make_planned_case

from dlperf_slurm.jobs.beside_record import Beside
from dlperf_slurm.reports.kept_repeats import decode_repeats, encode_repeats
from dlperf_slurm.results.collect import CaseOutcomes

TEXTS = {0: "of the case", 1: "a", 2: "b", 3: "c"}
STEPS = numpy.arange(1.0, 19.0).reshape(3, 2, 3)


def make_case(mode="train", repeats=3):
    """Three sound repeats of two ranks and three steps."""
    planned = make_planned_case(mode=mode, repeats=repeats)
    outcomes = make_outcomes(planned, [100.0] * repeats).outcomes
    timed = [outcome.with_times(steps) for outcome, steps in zip(outcomes, STEPS)]
    return CaseOutcomes(planned, tuple(timed))


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_repeats_come_back_as_they_were(mode):
    case = make_case(mode)
    found = decode_repeats(encode_repeats(TEXTS, case), STEPS.ravel())
    assert [found[text] for text in "abc"] == list(case.outcomes)
    for text, steps in zip("abc", STEPS):
        assert (found[text].rank_step_seconds == steps).all()
    assert bool(found["b"].batch_seconds) == (mode == "infer")


def test_bytes_have_no_step_times():
    case = make_case("infer")
    many = numpy.ones((2, 10_000))
    larger = replace(case, outcomes=(case.outcomes[0].with_times(many), *case.outcomes[1:]))
    added = len(encode_repeats(TEXTS, larger)) - len(encode_repeats(TEXTS, case))
    assert added < 100


def test_repeat_with_times_of_tokens_is_not_kept_and_those_after_it_have_their_own_steps():
    first, second, third = make_case("infer").outcomes
    beside = Beside(token_seconds=numpy.ones((2, 3, 4)))
    case = replace(make_case("infer"), outcomes=(first, replace(second, beside=beside), third))
    found = decode_repeats(encode_repeats(TEXTS, case), STEPS.ravel())
    assert list(found) == ["a", "c"]
    assert (found["c"].rank_step_seconds == STEPS[2]).all()


def test_repeat_without_steps_takes_none_of_those_after_it():
    first, second, third = make_case().outcomes
    case = replace(make_case(), outcomes=(first.without_times(), second, third))
    found = decode_repeats(encode_repeats(TEXTS, case), STEPS[1:].ravel())
    assert found["a"].rank_step_seconds is None
    assert (found["b"].rank_step_seconds == STEPS[1]).all()
