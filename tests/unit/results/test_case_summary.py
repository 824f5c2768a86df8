"""A case that was reduced shows in a report what the whole one shows, without its times."""

import dataclasses
import pickle

import numpy
import pytest
from builders import make_outcomes, make_planned_case, make_rank
from outcome_builders import make_steps, make_telemetry
from report_values import make_cases, make_repeat_frame

from dlperf_slurm.results.case_summary import abridge_record, reduce_case
from dlperf_slurm.results.cases import analyze
from dlperf_slurm.results.interference import make_banner


def make_inference():
    planned = make_planned_case(case_id="infer", mode="infer", repeats=3)
    return make_outcomes(planned, [100.0, 101.0], ["failed: x"], make_steps(40))


CASES = [*make_cases(), make_inference()]


def test_frames_of_reduced_cases_are_those_of_the_whole_ones():
    reduced = [reduce_case(case) for case in CASES]
    for make_frame in (lambda cases: analyze(cases).case_columns, make_repeat_frame):
        whole = make_frame(CASES)
        assert whole.equals(make_frame(reduced))
        assert not whole.empty


def test_reduced_case_has_no_array_and_no_batches():
    large = numpy.full((4, 100_000), 0.1)
    (case, *_) = make_cases()
    ranks = tuple(make_rank(number) for number in range(4))
    outcome = case.outcomes[0]
    record = dataclasses.replace(outcome.record, ranks=ranks)
    timed = dataclasses.replace(
        outcome, record=record, batch_seconds=(0.1,) * 100_000, rank_step_seconds=large
    )
    reduced = reduce_case(dataclasses.replace(case, outcomes=(timed,)))
    assert len(pickle.dumps(reduced)) < large.nbytes / 50


def test_abridged_record_tells_hosts_devices_and_the_throughput():
    (case, *_) = make_cases()
    record = case.outcomes[0].record
    places = [("b", "gpu", 1.0), ("a", "gpu", 2.0), ("b", "cpu", 1.5), ("b", "gpu", 3.0)]
    ranks = tuple(
        make_rank(number, host=host, device_name=device, window_seconds=seconds)
        for number, (host, device, seconds) in enumerate(places)
    )
    whole = dataclasses.replace(record, ranks=ranks)
    abridged = abridge_record(whole)
    assert [rank.rank for rank in abridged.ranks] == [3, 1, 2]
    assert abridged.samples_per_s == whole.samples_per_s
    for name in ("host", "device_name"):
        named = [
            list(dict.fromkeys(getattr(r, name) for r in one.ranks)) for one in (whole, abridged)
        ]
        assert named[0] == named[1]


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_banner_is_that_of_the_whole_cases(share):
    (case, *_) = make_cases()
    stolen = make_telemetry(-1, stolen_share=share)
    outcomes = tuple(
        dataclasses.replace(o, record=dataclasses.replace(o.record, telemetry=(stolen,)))
        for o in case.outcomes
        if o.record
    )
    noisy = dataclasses.replace(case, outcomes=outcomes)
    assert make_banner([reduce_case(noisy)]) == make_banner([noisy])
    assert bool(make_banner([noisy])) == (share > 0)
