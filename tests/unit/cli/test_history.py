"""The command history: its tables, exports, drawing, and the guard with its exit codes."""

import csv
import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import duckdb
import pytest
from builders import run_main
from history_runs import CASE_1, CASE_2, RESULTS, add_run, fail_case, set_manifest
from support.problems import assert_problem

from dlperf_slurm.jobs.run_directory import open_run

pytestmark = pytest.mark.integration

LIMIT = ["--fail-if-slower", "3%"]


def run_history(capsys, *arguments):
    return run_main(["history", *map(str, arguments)], capsys)


@pytest.fixture
def two_runs(staged, home):
    return [add_run(staged, 1), add_run(staged, 2, 0.9)]


@pytest.fixture
def runs(staged, home):
    """Return a function that adds runs, one a day, with these factors on their rates."""

    def add(*factors, **options):
        first = len(list(RESULTS.glob("2024*"))) + 1 if RESULTS.exists() else 1
        return [add_run(staged, first + i, factor, **options) for i, factor in enumerate(factors)]

    return add


def list_rows(out):
    return [line.split() for line in out.splitlines() if line.startswith(" 2024")]


def test_runs_of_the_same_second_are_told_apart(staged, home, capsys):
    for name in ("a", "b"):
        path = add_run(staged, 1)
        set_manifest(path, run_id=f"20240501-120000-{name}")
        path.rename(RESULTS / name)
    _, out, _ = run_history(capsys, "--case", "1n1g")
    assert [row[0] for row in list_rows(out)] == ["20240501-120000-a", "20240501-120000-b"]


def test_table_has_a_row_per_run_and_a_note_per_change(runs, capsys):
    runs(1.0, versions={"torch": "2.5.0"})
    runs(0.9, versions={"torch": "2.13.0"})
    code, out, err = run_history(capsys, "--case", "1n1g")
    rows = list_rows(out)
    assert (code, err) == (0, "")
    # 80 times the rates; the extremes of seven
    assert rows[0] == [
        "20240501-120000", "8000", "(7920", "to", "8080)", "none", "first",
    ]  # fmt: skip
    assert (rows[1][1], rows[1][5], rows[1][-2:]) == ("7200", "0.900", ["slower", "[1]"])
    assert "[1] torch 2.5.0 -> 2.13.0\n" in out
    assert "; first torch 2.5.0; last torch 2.13.0\n" in out


def test_of_many_cases_only_the_newest_run_is_shown(runs, capsys, monkeypatch):
    monkeypatch.setattr("dlperf_slurm.cli.history.MAX_CASES", 1)
    runs(1.0, 0.9)
    _, out, _ = run_history(capsys)
    rows = [line.split() for line in out.splitlines() if line.startswith(" pytorch")]
    assert [row[:4] for row in rows] == [
        [CASE_1, "20240502-120000", "2", "7200"], [CASE_2, "20240502-120000", "2", "14400"],
    ]  # fmt: skip
    assert all(row[-1] == "slower" for row in rows)
    for options in (["--all"], ["--case", CASE_1]):
        assert list_rows(run_history(capsys, *options)[1])


def test_failed_run_has_its_word_and_its_reason(runs, capsys):
    fail_case(runs(1.0)[0], CASE_1)
    _, out, _ = run_history(capsys, "--case", "1n1g")
    assert "failed [1]" in out
    assert "[1] failed: rank 1 on node1: ValueError: x\n" in out
    assert "no run has a result for this case" in out


def test_problem_of_the_folder_is_a_warning(two_runs, capsys):
    (two_runs[0] / "manifest.json").unlink()
    code, out, err = run_history(capsys)
    assert code == 0
    assert_problem(err, key=f"warning: {two_runs[0]}", says=("manifest.json",))
    assert len(list_rows(out)) == 2


def test_several_folders_make_one_history(staged, home, capsys):
    add_run(staged, 1)
    shutil.copytree(RESULTS, "archive")
    add_run(staged, 2, results=home / "other")
    code, out, err = run_history(
        capsys, "--results", RESULTS, "--results", "archive", "--results", "other", "--case", "1n1g"
    )
    assert (code, len(list_rows(out))) == (0, 2)
    assert err.count("a copy of results/") == 1


def test_json_has_all_facts(two_runs, capsys):
    _, out, _ = run_history(capsys, "--json")
    data = json.loads(out)
    timelines = data["timelines"]
    assert data["schema_version"] == 1
    assert [timeline["case_id"] for timeline in timelines] == [CASE_1, CASE_2]
    assert timelines[0]["points"][0]["entry"]["batch_size_per_device"] == 8
    assert timelines[0]["points"][1]["comparison"]["verdict"] == "slower"
    assert timelines[0]["points"][0]["entry"]["provenance"]["python"] == ["3.11"]


def test_csv_and_parquet_have_a_line_per_case_and_run(two_runs, capsys):
    run_history(capsys, "--csv", "h.csv", "--parquet", "it's.parquet")
    with Path("h.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    columns = ("run_id", "samples_per_s", "verdict")
    query = f"SELECT {', '.join(columns)} FROM read_parquet($1)"
    rows = duckdb.execute(query, ["it's.parquet"]).fetchall()
    assert rows[:2] == [
        ("20240501-120000-seven-tiny-abcd", pytest.approx(8000), ""),
        ("20240502-120000-seven-tiny-abcd", pytest.approx(7200), "slower"),
    ]
    assert [[line[name] for name in columns] for line in lines] == [[*map(str, r)] for r in rows]


@pytest.mark.parametrize("words", [("--csv", "nowhere/file"), ("--plot", "a.jpg")])
def test_file_that_cannot_be_written_is_an_error(two_runs, capsys, words):
    code, _, err = run_history(capsys, *words)
    assert code == 2
    assert_problem(err, key=words[0])


def list_texts(path):
    return {"".join(e.itertext()).strip() for e in ElementTree.parse(path).iter() if e.text}


def test_plot_has_a_panel_per_case_and_is_the_same_each_time(runs, capsys):
    runs(1.0, 0.9)
    fail_case(runs(1.0)[0], CASE_2)
    for name in ("a.svg", "b.svg"):
        assert run_history(capsys, "--plot", name)[0] == 0
    title = "Throughput from run to run (higher: faster)"
    assert {CASE_1, CASE_2, "images/s", title} <= list_texts("a.svg")
    assert Path("a.svg").read_bytes() == Path("b.svg").read_bytes()


def test_folder_without_runs_is_an_error(home, capsys):
    RESULTS.mkdir()
    code, _, err = run_history(capsys)
    assert code == 2
    assert_problem(err, file="results", says=("no runs",))


def test_slower_run_beyond_the_limit_exits_with_6_and_names_the_case(runs, capsys):
    runs(1.0, 1.0, 0.9)
    code, _, err = run_history(capsys, *LIMIT)
    assert code == 6
    first, second, *_ = err.splitlines()
    assert_problem(first, says=("3 %", "2 of 2 cases"))
    assert_problem(second.strip(), says=(CASE_1, "20240501-120000-seven-tiny-abcd", "0.900"))


@pytest.mark.parametrize(
    ("factors", "options", "changes", "code"),
    [
        ((1.0, 1.0, 0.98), (), [], 0),
        # the middle one of 1, 0.8 and 1 is 1; the run just before would pass
        ((1.0, 1.0, 0.8, 0.9), (), [], 6),
        ((1.0, 1.0, 0.9, 0.9), ("--window", "1"), [], 0),
        ((1.0, 1.0, 0.9, 0.9), ("--window", "3"), [], 6),
        ((1.0, 1.0), ("--window", "0"), [], 2),
        # the first run of all
        ((1.0,), (), [], 5),
        # no measure for another machine
        ((1.0, 0.9), (), [{"platform": {"cpu_model": name}} for name in "AB"], 5),
        ((1.0, 0.9), (), [{"versions": {"torch": name}} for name in ("2.5", "2.13")], 6),
        ((1.0, 0.9), (), [{"repeats": 3}] * 2, 7),
    ],
)
def test_newest_run_is_guarded_by_the_runs_before_it(runs, capsys, factors, options, changes, code):
    for factor, change in zip(factors, changes or [{}] * len(factors)):
        runs(factor, **change)
    assert run_history(capsys, *LIMIT, *options)[0] == code


def test_failed_newest_run_does_not_pass(runs, capsys):
    runs(1.0)
    fail_case(runs(1.0)[0], CASE_1)
    code, _, err = run_history(capsys, *LIMIT)
    assert code == 5
    assert_problem(err.splitlines()[1].strip(), key=CASE_1, says=("not comparable", "rank 1"))


def test_case_that_never_ran_before_is_not_guarded(runs, capsys):
    (first,) = runs(1.0)
    kept = [case for case in open_run(first).manifest.cases if case.case_id == CASE_1]
    set_manifest(first, cases=tuple(kept))
    runs(1.0)
    assert run_history(capsys, *LIMIT)[0] == 0
