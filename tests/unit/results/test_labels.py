"""Each measured case has a row of its own in the tables of its kind, or there is no report."""

import pytest
from axis_samples import AXIS_SAMPLES
from builders import make_manifest, make_outcomes, make_planned_case
from report_values import find_tables, read_column, summarize

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.contract.record import Epoch
from dlperf_slurm.results import labels
from dlperf_slurm.results.labels import VARIANTS

# the tables themselves tell compilers apart
OTHERS = {axis: AXIS_SAMPLES[axis] for axis in VARIANTS if axis != "compiler"}
EPOCH = Epoch(1, 0.5, 2.0, 2.0, 10.0, 12.0)


def summarize_cases(*changes):
    """Measured cases, each with these changes of one and the same."""
    cases = [
        make_outcomes(
            make_planned_case(**change), [100.0] * 3, batch_seconds=[0.1] * 3, epochs=(EPOCH,)
        )
        for change in changes
    ]
    return summarize(make_manifest(), cases)


def count_rows(summary, kind):
    return [len(table.rows) for table in find_tables(summary, kind)]


@pytest.mark.parametrize("axis", OTHERS)
def test_cases_that_differ_in_one_axis_have_a_row_each(axis):
    assert count_rows(summarize_cases({}, {axis: OTHERS[axis]}), "throughput") == [2]


@pytest.mark.parametrize("axis", OTHERS)
def test_axis_that_labels_do_not_know_fails_instead_of_showing_two_like_rows(axis, monkeypatch):
    known = tuple(spec for spec in labels.VARIANT_SPECS if spec.name != axis)
    monkeypatch.setattr(labels, "VARIANT_SPECS", known)
    with pytest.raises(AssertionError, match=r"same labels: pytorch, 1n1g$"):
        summarize_cases({}, {axis: OTHERS[axis]})


def test_topology_that_a_framework_lacks_takes_no_row():
    summary = summarize_cases({"topology": "1n1g"}, {"topology": "1n2g", "framework": "jax"})
    (table,) = find_tables(summary, "throughput")
    assert [cell.text for cell in read_column(table, "framework")] == ["pytorch", "jax"]


def test_generation_is_in_both_of_its_tables_and_a_forward_pass_in_one():
    summary = summarize_cases({"mode": INFER, "output_tokens": 4}, {"mode": INFER})
    assert count_rows(summary, "latency") == [1, 1]
    assert count_rows(summary, "generation") == [1]


def test_training_to_accuracy_is_in_both_of_its_tables():
    summary = summarize_cases({"epochs": 1}, {"data": "zmq"})
    assert count_rows(summary, "throughput") == [2]
    assert count_rows(summary, "accuracy") == [1]
