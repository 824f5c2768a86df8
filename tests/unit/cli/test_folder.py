"""`list` and `log`: the runs of a results folder, and what their array tasks printed."""

import json

import pytest
from builders import find_task, make_failed_record, make_record, read_case, run_main, write_record
from history_runs import CASE_2, add_run

from dlperf_slurm.contract.record import FAILED
from dlperf_slurm.jobs.journal import CANCELLED, SUBMITTED, Event, append_event


@pytest.fixture
def run(staged_run):
    """One repeat of 1n1g was measured, one failed; each printed something."""
    for repeat, make in ((1, make_record), (2, lambda case: make_failed_record(case, FAILED, "x"))):
        task = find_task(staged_run, "1n1g", repeat)
        path = write_record(staged_run, task, make(read_case(staged_run, task)))
        lines = [f"line {number} of repeat {repeat}" for number in range(50)]
        (path.parent / "err").write_text("\n".join(lines), encoding="utf-8")
    return staged_run


def list_runs(capsys):
    code, out, _ = run_main(["list", "--json"], capsys)
    assert code == 0
    return json.loads(out)


def test_list_has_the_state_and_best_throughput_of_each_run(run, capsys):
    (row,) = list_runs(capsys)
    assert (row["run_id"], row["title"]) == (run.run_id, run.manifest.title or "matrix")
    assert (row["measured_repeats"], row["planned_repeats"]) == (1, 6)
    # 8 samples x 10 steps in 2 s
    assert row["headline"].startswith("40.00 images/s")
    assert row["state"] == "not submitted"
    append_event(run.path, Event(SUBMITTED, "2024-05-01T12:00:00Z", "1n1g", "7"))
    assert list_runs(capsys)[0]["state"] == "1 of 6 repeats done"
    append_event(run.path, Event(CANCELLED, "2024-05-01T12:00:00Z", detail="7"))
    assert list_runs(capsys)[0]["state"] == "1 of 6 repeats done, cancelled"
    (run.path / "manifest.json").write_text("{")
    code, out, err = run_main(["list"], capsys)
    assert (code, "contains no runs" in out, "manifest.json" in err) == (0, True, True)


def test_log_of_array_tasks_without_a_planned_case_shows_nothing(run, capsys):
    manifest = json.loads((run.path / "manifest.json").read_text())
    (run.path / "manifest.json").write_text(json.dumps({**manifest, "cases": []}))
    assert run_main(["log", str(run.path)], capsys)[0] == 0


def test_folder_that_is_missing_is_named(home, capsys):
    code, out, _ = run_main(["list", "--results", "nope"], capsys)
    assert (code, out) == (0, "nope: no such folder\n")


def test_best_throughput_has_the_digits_that_its_interval_allows(staged, home, capsys, monkeypatch):
    monkeypatch.setattr("history_runs.RATES", [0.3, 0.4, 0.5, 0.54321, 0.6, 0.7, 0.8])
    add_run(staged, 1)
    (row,) = list_runs(capsys)
    # 86.9136, 95 % interval 48 to 128
    assert (row["headline"], row["best_case"]) == ("87 images/s", CASE_2)


@pytest.mark.parametrize(
    ("words", "first", "others"),
    [
        ([], "line 10 of repeat 2", ["repeat 1", "line 9 of"]),
        (["latest", "*1n1g*", "-n", "1"], "line 49 of repeat 1", ["line 48"]),
        (["latest", "1n1g", "--lines", "0"], "line 0 of repeat 1", []),
    ],
)
def test_log_prints_the_end_of_what_failed_or_is_named(run, words, first, others, capsys):
    code, out, _ = run_main(["log", *words], capsys)
    lines = [line for line in out.splitlines() if not line.startswith("==> ")]
    assert (code, lines[0], lines[-1]) == (0, first, "line 49 of repeat 2")
    assert [text for text in others if text in out] == []


def test_log_names_the_cases_if_none_matches(run, capsys):
    code, _, err = run_main(["log", "latest", "xyz"], capsys)
    assert (code, find_task(run, "2n2g", 1).case_id in err) == (2, True)


def test_log_names_repeats_without_output_in_one_line(run, capsys):
    case_id = find_task(run, "2n2g", 1).case_id
    code, out, _ = run_main(["log", "latest", case_id], capsys)
    assert (code, out) == (0, f"==> {case_id} repeat 1, 2: no output <==\n")
