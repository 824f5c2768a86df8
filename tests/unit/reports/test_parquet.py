"""Parquet: the lines of the CSV, with their types."""

import duckdb
import pytest
from builders import read_csv
from report_values import HOSTILE, make_cases, make_measured, rename, summarize_cases

from dlperf_slurm.reports import csv_format
from dlperf_slurm.reports.parquet import COUNT_FIELDS, TEXT_FIELDS, serialize


@pytest.fixture
def read(tmp_path):
    """Rows of a summary's Parquet file as dictionaries."""

    def read_summary(summary):
        path = tmp_path / "report.parquet"
        path.write_bytes(serialize(summary))
        found = duckdb.sql(f"SELECT * FROM '{path}'")
        return [dict(zip(found.columns, row)) for row in found.fetchall()]

    return read_summary


def read_types(summary, path) -> dict[str, str]:
    path.write_bytes(serialize(summary))
    found = duckdb.sql(f"DESCRIBE SELECT * FROM '{path}'").fetchall()
    return {row[0]: row[1] for row in found}


def test_values_are_those_of_the_csv(read):
    summary = summarize_cases(make_cases())
    lines = read_csv(summary)
    rows = read(summary)
    assert len(rows) == len(lines) > 0
    for row, line in zip(rows, lines):
        # repr is how a float stands in the CSV
        assert {name: "" if v is None else str(v) for name, v in row.items()} == line


def test_figures_are_numbers_and_names_are_texts(tmp_path):
    types = read_types(summarize_cases(make_cases()), tmp_path / "x.parquet")
    assert types["samples_per_s"] == "DOUBLE"
    assert types["repeats_measured"] == "BIGINT"
    assert types["batch_size_per_device"] == "VARCHAR"


def test_types_do_not_depend_on_what_was_measured(tmp_path):
    path = tmp_path / "x.parquet"
    nothing = [make_measured("jax", "1n1g", [], ["not submitted"])]
    everything = read_types(summarize_cases(make_cases()), path)
    assert read_types(summarize_cases(nothing), path) == everything
    assert read_types(summarize_cases([]), path) == everything


def test_missing_figure_is_null_and_its_problem_says_why(read):
    (row,) = read(summarize_cases([make_measured("jax", "1n1g", [], ["failed: x"])]))
    assert row["samples_per_s"] is None
    assert row["problem"] == "failed"


def test_hostile_text_comes_back_as_it_was(read):
    case = rename(make_measured("jax", "1n1g", [0.1]), framework=HOSTILE, notes=("'); DROP",))
    (row,) = read(summarize_cases([case]))
    assert row["framework"] == HOSTILE
    assert row["footnotes"].startswith("'); DROP")


def test_declared_fields_are_those_of_the_csv():
    assert set(csv_format.FIELDS) >= TEXT_FIELDS | COUNT_FIELDS
