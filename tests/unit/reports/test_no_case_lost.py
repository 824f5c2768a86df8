"""Each measured case stands in the tables of its kind exactly once, or there is no report."""

import dataclasses
import re

import pytest
from axis_samples import AXIS_SAMPLES
from builders import make_manifest, make_outcomes, make_planned_case

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.contract.record import Epoch
from dlperf_slurm.reports.summarize import check_places, summarize
from dlperf_slurm.results.cases import VARIANT_AXES

# the tables themselves tell compilers apart
OTHERS = {axis: AXIS_SAMPLES[axis] for axis in VARIANT_AXES if axis != "compiler"}
EPOCH = Epoch(1, 0.5, 2.0, 2.0, 10.0, 12.0)


def make_cases(*changes):
    """Measured cases, each with these changes of one and the same."""
    return [
        make_outcomes(
            make_planned_case(**change), [100.0] * 3, batch_seconds=[0.1] * 3, epochs=(EPOCH,)
        )
        for change in changes
    ]


def summarize_cases(*changes):
    return summarize(make_manifest(), make_cases(*changes))


def list_cells(summary):
    columns = [column for table in summary.throughput_tables for column in table.columns]
    return [cell.case_id for column in columns for cell in column.cells]


@pytest.mark.parametrize("axis", OTHERS)
def test_cases_that_differ_in_one_axis_have_a_cell_each(axis):
    summary = summarize_cases({"case_id": "one"}, {"case_id": "other", axis: OTHERS[axis]})
    assert list_cells(summary) == ["one", "other"]


@pytest.mark.parametrize("axis", OTHERS)
def test_axis_that_tables_do_not_know_fails_instead_of_losing_a_case(axis, monkeypatch):
    monkeypatch.delitem(VARIANT_AXES, axis)
    message = "not exactly once in the throughput tables: one"
    with pytest.raises(AssertionError, match=f"^{re.escape(message)}$"):
        summarize_cases({"case_id": "one"}, {"case_id": "other", axis: OTHERS[axis]})


def test_every_lost_case_is_named():
    with pytest.raises(AssertionError, match=r": one, two$"):
        summarize_cases({"case_id": "two"}, {"case_id": "one"}, {"case_id": "three"})


def test_topology_that_a_column_lacks_is_no_case_too_many():
    summary = summarize_cases(
        {"case_id": "one", "topology": "1n1g"},
        {"case_id": "other", "topology": "1n2g", "framework": "jax"},
    )
    assert list_cells(summary) == ["one", "", "", "other"]


def test_case_that_was_left_out_has_its_place_too():
    with pytest.raises(AssertionError, match="throughput tables: one"):
        summarize_cases({"case_id": "one", "reason": "excluded"}, {"case_id": "other"})


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("throughput", {}),
        ("latency", {"mode": INFER}),
        ("accuracy", {"epochs": 1}),
        ("generation", {"mode": INFER, "output_tokens": 4}),
    ],
)
@pytest.mark.parametrize("count", [0, 2])
def test_case_without_its_place_or_with_two_is_named(kind, changes, count):
    cases = make_cases({"case_id": "one", **changes})
    summary = summarize(make_manifest(), cases)
    tables = getattr(summary, f"{kind}_tables")
    wrong = dataclasses.replace(summary, **{f"{kind}_tables": tables * count})
    with pytest.raises(AssertionError, match=f"in the {kind} tables: one$"):
        check_places(wrong, cases)


def test_generation_is_in_both_of_its_tables_and_a_forward_pass_in_one():
    summary = summarize_cases(
        {"case_id": "one", "mode": INFER, "output_tokens": 4},
        {"case_id": "two", "mode": INFER},
    )
    places = [
        [row.case_id for table in tables for row in table.rows]
        for tables in (summary.latency_tables, summary.generation_tables)
    ]
    assert places == [["one", "two"], ["one"]]


def test_training_to_accuracy_is_in_both_of_its_tables():
    summary = summarize_cases({"case_id": "one", "epochs": 1}, {"case_id": "two", "data": "zmq"})
    assert list_cells(summary) == ["one", "two"]
    assert [row.case_id for table in summary.accuracy_tables for row in table.rows] == ["one"]
