"""A summarized case has rows, and the slowest rank's step times in place of all ranks'."""

import dataclasses

from builders import make_rank
from report_values import make_cases

from dlperf_slurm.results.case_summary import (
    DEVICE,
    HOST,
    summarize_case,
)


def make_outcomes_of(ranks, **changes):
    (case, *_) = make_cases()
    record = dataclasses.replace(case.outcomes[0].record, ranks=ranks)
    outcome = dataclasses.replace(case.outcomes[0], record=record, **changes)
    return dataclasses.replace(case, outcomes=(outcome,))


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
