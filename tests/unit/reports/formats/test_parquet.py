"""Parquet: the rows of the frames, with their types."""

import dataclasses
import tempfile

import duckdb
import pytest
from builders import read_csv
from report_values import (
    HOSTILE,
    make_cases,
    make_measured,
    rename,
    summarize_cases,
)

from dlperf_slurm.reports.formats.parquet import serialize_frames
from dlperf_slurm.reports.step_files import find_step_file, write_case
from dlperf_slurm.results.cases import analyze
from dlperf_slurm.results.detail_frames import make_step_frame


def make_columns(cases):
    return analyze(cases).case_columns


@pytest.fixture
def read(tmp_path):
    """Rows of a frame's Parquet file as dictionaries."""

    def read_frame(frame):
        path = tmp_path / "x.parquet"
        path.write_bytes(*serialize_frames(frame))
        found = duckdb.sql(f"SELECT * FROM '{path}'")
        return [dict(zip(found.columns, row)) for row in found.fetchall()]

    return read_frame


def read_types(frame, path) -> dict[str, str]:
    path.write_bytes(*serialize_frames(frame))
    found = duckdb.sql(f"DESCRIBE SELECT * FROM '{path}'").fetchall()
    return {row[0]: row[1] for row in found}


def test_values_are_those_of_the_csv(read):
    cases = make_cases()
    lines = read_csv(summarize_cases(cases))
    rows = read(make_columns(cases))
    assert len(rows) == len(lines) == len(cases)
    for row, line in zip(rows, lines):
        # repr is how a float stands in the CSV
        assert {name: "" if v is None else str(v) for name, v in row.items()} == line


def test_figures_are_numbers_and_names_are_texts(tmp_path):
    types = read_types(make_columns(make_cases()), tmp_path / "x.parquet")
    assert types["samples_per_s"] == "DOUBLE"
    assert types["repeats_measured"] == "BIGINT"
    assert types["clip_global_norm"] == "BOOLEAN"
    assert types["batch_size_per_device"] == "VARCHAR"


def test_hostile_text_comes_back_as_it_was(read):
    case = rename(make_measured("jax", "1n1g", [0.1]), framework=HOSTILE, notes=("'); DROP",))
    (row,) = read(make_columns([case]))
    assert row["framework"] == HOSTILE
    assert row["notes"].startswith("'); DROP")


def test_folder_for_temporary_files_may_have_a_hostile_name(tmp_path, monkeypatch):
    folder = tmp_path / "it's $(x) #"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert serialize_frames(make_columns([]))[0].startswith(b"PAR1")


def read_rows(path):
    with duckdb.connect() as connection:
        return connection.execute("SELECT * FROM read_parquet($1)", [str(path)]).fetchall()


def test_steps_of_each_case_are_in_a_file_as_they_are_in_the_frame(tmp_path):
    folder = tmp_path / "it's $(x) #"
    folder.mkdir()
    cases = make_cases()
    for case in cases:
        write_case(case, folder, folder)
    assert list(folder.iterdir()) == [folder / "steps"]
    written = [path for c in cases for path in [find_step_file(folder, c.case.case_id)]]
    (tmp_path / "frame.parquet").write_bytes(*serialize_frames(make_step_frame(cases)))
    rows = [row for path in written if path.exists() for row in read_rows(path)]
    assert rows == read_rows(tmp_path / "frame.parquet")


def test_case_that_lost_its_steps_has_no_file_of_them_any_more(tmp_path):
    case = make_measured("jax", "1n2g", [0.1])
    (outcome,) = case.outcomes
    lost = dataclasses.replace(outcome, rank_step_seconds=None)
    write_case(case, tmp_path, tmp_path)
    assert find_step_file(tmp_path, case.case.case_id).exists()
    write_case(dataclasses.replace(case, outcomes=(lost,)), tmp_path, tmp_path)
    assert not find_step_file(tmp_path, case.case.case_id).exists()
