"""Outcomes -> a row per planned case, with every axis and every number in a column of its own."""

import csv
import io

import pandas
import pytest
from builders import make_outcomes, make_planned_case
from report_values import HOSTILE, make_measured, rename

from dlperf_slurm.contract.axes import INFER, TRAIN
from dlperf_slurm.results.cases import analyze
from dlperf_slurm.results.columns import (
    TIME,
    TIME_FORMAT,
    cast,
    list_records,
    list_values,
    serialize_csv,
)

SEVEN = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8]


def describe(*cases) -> list[dict]:
    """Return the typed columns of these cases, row by row."""
    return list_records(analyze(cases).case_columns)


def test_figures_of_a_case_and_their_bounds():
    row, other = describe(
        make_outcomes(make_planned_case("1n1g", repeats=7), SEVEN),
        make_outcomes(make_planned_case("1n2g", repeats=7), [1.5 * rate for rate in SEVEN]),
    )
    assert (row["samples_per_s"], row["interval_low"], row["interval_high"]) == (100.0, 99.0, 101.0)
    assert (row["smallest"], row["largest"], row["repeats_measured"]) == (99.0, 101.0, 7)
    assert (other["speedup"], other["weak_scaling_efficiency"]) == pytest.approx((1.5, 0.75))
    assert (row["speedup"], row["speedup_low"]) == (1.0, None)
    assert other["speedup_low"] < 1.5 < other["speedup_high"]
    assert other["baseline"] == "1n1g"


def test_case_that_was_left_out_has_its_axes_and_its_reason_and_no_figure():
    case = make_planned_case(reason="the site has 2 nodes", notes=("no clipping",))
    (row,) = describe(make_outcomes(case))
    assert (row["framework"], row["nodes"], row["repeats_planned"]) == ("pytorch", 1, 0)
    assert (row["problem"], row["reason"]) == ("not run", "the site has 2 nodes")
    assert row["notes"] == "no clipping"
    assert (row["samples_per_s"], row["speedup"], row["parameter_count"]) == (None, None, None)


def test_notes_have_the_figures_of_their_own_case():
    rows = [
        make_outcomes(make_planned_case(topology, repeats=3), [100.0, 100.0 - s, 100.0 + s])
        for topology, s in (("1n1g", 10.0), ("1n2g", 20.0))
    ]
    notes = [row["notes"] for row in describe(*rows)]
    assert "vary by 10 %" in notes[0]
    assert "vary by 20 %" in notes[1]


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "x", None])
def test_time_that_no_frame_can_have_is_missing(text):
    known = "2024-02-29T00:00:00Z"
    times = cast(pandas.Series([text, known], dtype=object), TIME)
    assert times.dtype == TIME
    assert [time and time.strftime(TIME_FORMAT) for time in list_values(times)] == [None, known]


def test_hostile_values_of_an_axis_come_back_from_the_csv_but_what_a_spreadsheet_would_obey():
    texts = [HOSTILE, "a,b", 'a"b', "a\nb", " a ", "nan", "é", "1=1", "=1+1", "a\r\x1b[2Jb"]
    measured = make_measured("jax", "1n1g", [0.1])
    cases = [rename(measured, optimizer=text, framework=text) for text in texts]
    text = serialize_csv(analyze(cases).case_columns)
    lines = list(csv.DictReader(io.StringIO(text, newline="")))
    expected = [*texts[:3], "a b", *texts[4:-2], "'=1+1", "a[2Jb"]
    assert [line["optimizer"] for line in lines] == expected
    assert [line["framework"] for line in lines] == expected


def test_throughput_of_inference_has_no_speedup_over_devices():
    cases = [
        make_outcomes(make_planned_case(t, mode=mode), [r], batch_seconds=[0.1])
        for mode in (TRAIN, INFER)
        for t, r in (("1n1g", 10.0), ("1n2g", 20.0))
    ]
    assert [row["speedup"] for row in describe(*cases)] == [1.0, 2.0, None, None]
