"""The page about many timings: its query runs over the Parquet files of several reports."""

import dataclasses
import re
from pathlib import Path

import duckdb
import numpy
import pytest
from history_runs import add_run, write_step_seconds
from outcome_builders import change_outcomes, make_case_outcomes

from dlperf_slurm.cli import main
from dlperf_slurm.jobs.run_directory import open_run
from dlperf_slurm.reports.step_files import find_step_file, write_case

pytestmark = pytest.mark.integration

PAGE = Path(__file__).resolve().parents[3] / "docs" / "beyond-one-machine.md"
# 2 ranks x 4 steps, whose slowest take 2 s but for the last, which takes 4 s
SECONDS = numpy.array([[1.0, 2.0, 1.0, 4.0], [2.0, 1.0, 2.0, 4.0]])


def add_steps(outcomes):
    """Add a second rank and step times to the repeats of a case."""
    (rank,) = outcomes.records[0].ranks
    ranks = (rank, dataclasses.replace(rank, rank=1))
    return change_outcomes(
        outcomes, lambda _: {"rank_step_seconds": SECONDS, "record": {"ranks": ranks}}
    )


def test_query_of_the_page_runs_over_the_files_of_reports(tmp_path, monkeypatch):
    for run in ("a", "b"):
        folder = tmp_path / "results" / run / "report"
        folder.mkdir(parents=True)
        cases = [add_steps(make_case_outcomes((10.0, 11.0), number)) for number in (0, 1)]
        for case in cases:
            write_case(case, folder, tmp_path)
    monkeypatch.chdir(tmp_path)
    (query,) = re.findall(r'duckdb\.sql\("""\n(.*?)"""\)', PAGE.read_text(encoding="utf-8"), re.S)
    rows = duckdb.sql(query).fetchall()
    # 2 runs x 2 repeats x 4 steps; in three of four one of two ranks waits for half of the step
    assert [(row[0], row[1]) for row in rows] == [("case0", 16), ("case1", 16)]
    for _, _, median, p99, waiting in rows:
        assert (median, p99) == (2.0, 4.0)
        assert waiting == pytest.approx(0.75 * 0.25)


def test_step_files_are_written_if_asked_and_then_kept_up_to_date(staged, home):
    path = add_run(staged, 1)
    write_step_seconds(path)
    run = open_run(path)
    file = find_step_file(run.report_dir, run.manifest.cases[0].case_id)
    command = ["report", str(path), "--plots", "none"]
    main(command)
    assert not file.exists()
    main([*command, "--steps"])
    written = file.read_bytes()
    file.write_bytes(b"")
    main(command)
    assert file.read_bytes() == written
