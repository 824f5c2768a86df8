"""A summarized case has rows in place of its step times."""

import dataclasses
import pickle

import numpy
import pytest
from builders import make_rank
from report_values import make_cases

from dlperf_slurm.results.case_summary import (
    DEVICE,
    HOST,
    join_run_frames,
    make_run_frames,
    summarize_case,
)


def make_outcomes_of(ranks, **changes):
    (case, *_) = make_cases()
    record = dataclasses.replace(case.outcomes[0].record, ranks=ranks)
    outcome = dataclasses.replace(case.outcomes[0], record=record, **changes)
    return dataclasses.replace(case, outcomes=(outcome,))


def test_rows_have_no_times_of_ranks_and_batches():
    large = numpy.full((4, 100_000), 0.1)
    ranks = tuple(make_rank(number) for number in range(4))
    outcomes = make_outcomes_of(ranks, batch_seconds=(0.1,) * 100_000, rank_step_seconds=large)
    assert len(pickle.dumps(summarize_case(outcomes))) < large.nbytes / 50


def test_provenance_counts_a_host_once_a_repeat_and_names_all_its_devices():
    places = [("b", "gpu"), ("a", "gpu"), ("b", "cpu"), ("b", "gpu")]
    ranks = tuple(
        make_rank(number, host=host, device_name=device)
        for number, (host, device) in enumerate(places)
    )
    rows = summarize_case(make_outcomes_of(ranks)).rows["provenance"]
    assert [row[2:] for row in rows if row[1] == HOST] == [("b", "", 1), ("a", "", 1)]
    devices = [row[2:4] for row in rows if row[1] == DEVICE]
    assert devices == [("b", "gpu"), ("a", "gpu"), ("b", "cpu")]


@pytest.mark.parametrize("places", [(0,), (1, 3), (0, 1, 2, 3, 4), ()])
def test_frames_joined_of_two_parts_are_those_of_all_cases(places):
    rows = [summarize_case(case) for case in make_cases()]
    order = [own.case_id for own in rows]
    changed = make_run_frames([rows[place] for place in places])
    unchanged = {own.case_id for place, own in enumerate(rows) if place not in places}
    whole = make_run_frames(rows)
    joined = join_run_frames(whole, unchanged, changed, order)
    for name, frame in vars(whole).items():
        own = getattr(joined, name)
        assert own.dtypes.map(str).equals(frame.dtypes.map(str)), name
        assert own.astype("object").equals(frame.astype("object")), name
