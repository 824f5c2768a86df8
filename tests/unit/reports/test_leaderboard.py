"""Leaderboards and headline figures of a results folder."""

import pytest
from history_runs import RESULTS, add_run, fail_case

from dlperf_slurm.reports.leaderboard import (
    list_bests,
    list_headlines,
    shorten_run_id,
    tabulate_leaderboards,
)
from dlperf_slurm.results.history.timeline import read_history

pytestmark = pytest.mark.integration


@pytest.fixture
def bests(staged, home):
    add_run(staged, 1, 1.2)
    newest = add_run(staged, 2)
    fail_case(newest, "pytorch-resnet50-1n2g-bs8-fp32")
    return list_bests(read_history([RESULTS], [], []).rows)


def test_newest_result_of_each_case_counts(bests):
    ((subject, rows),) = bests.items()
    assert subject[1:] == ("train", "unknown hardware", "fp32")
    assert [(row["topology"], row["run_id"][:8]) for row in rows] == [
        ("1n1g", "20240502"),
        ("1n2g", "20240501"),
    ]
    assert [row["share"] for row in rows] == [1, 1]
    (headline,) = list_headlines(bests)
    assert "1n2g" in headline


def test_runs_are_linked(bests):
    run_id = next(iter(bests.values()))[0]["run_id"]
    (table,) = tabulate_leaderboards(bests, {run_id: "runs/x.html"})
    # a phone leaves out the last column
    for column in (2, -1):
        assert [row[column].link for row in table.rows] == ["runs/x.html", ""]
    assert table.rows[0][-1].text == shorten_run_id(run_id) == "20240502-120000"
    assert shorten_run_id("imported") == "imported"
