"""The second report of a run opens what is new of it, and says what the first one would."""

import json
import os
import pickle
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders import find_start_dir
from history_runs import add_run, stage_seven, write_step_seconds

from dlperf_slurm.contract.record import RECORD_FILE, STEP_SECONDS_FILE
from dlperf_slurm.jobs.run_directory import CASES_FILE, open_run
from dlperf_slurm.reports import case_index
from dlperf_slurm.reports.case_index import decode, open_index
from dlperf_slurm.reports.report_files import make_folder, make_report, write_files
from dlperf_slurm.reports.step_files import STEPS_FILE

pytestmark = pytest.mark.integration

opened = None


def _note_opened(event, details):
    if opened is not None and event == "open" and isinstance(details[0], (str, bytes)):
        opened.append(os.fsdecode(details[0]))


# there is no way to remove it again
sys.addaudithook(_note_opened)


@contextmanager
def note_opened():
    """The names of the files that are opened meanwhile."""
    global opened
    opened = names = []
    try:
        yield names
    finally:
        opened = None


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    return stage_seven(tmp_path_factory.mktemp("seven"))


@pytest.fixture
def run(staged, home):
    path = add_run(staged, 1)
    write_step_seconds(path)
    return open_run(path)


def write_report(run):
    """The contents of a report's files by their names."""
    folder = make_folder(run)
    write_files(make_report(run, {}), folder)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in list_files(folder)}


def list_files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def list_entries():
    return list_files(Path(os.environ["XDG_CACHE_HOME"], "dlperf-slurm", "reports"))


def change_record(run, index=0):
    """Write a record again, with another end."""
    task = run.read_all_tasks()[index]
    path = find_start_dir(run, task) / RECORD_FILE
    record = json.loads(path.read_text())
    record["ended_at"] = "2030-01-01T00:00:00Z"
    path.write_text(json.dumps(record))
    return task


def list_records(names):
    return [name for name in names if name.endswith(RECORD_FILE)]


def test_second_report_opens_no_record_and_is_the_same(run):
    with note_opened() as first_names:
        first = write_report(run)
    assert len(list_records(first_names)) == len(run.read_all_tasks())
    with note_opened() as names:
        assert write_report(run) == first
    assert list_records(names) == []


def test_report_after_one_new_record_opens_that_record(run):
    before = write_report(run)
    changed = [1, 0]
    for index in changed:
        task = change_record(run, index)
        assert len([one for one in run.read_all_tasks() if one.case_id == task.case_id]) > 1
        with note_opened() as names:
            after = write_report(run)
        assert len(list_records(names)) == 1
    assert after["repeats.parquet"] != before["repeats.parquet"]
    for entry in list_entries():
        entry.unlink()
    assert write_report(run) == after


def test_repeat_that_has_lost_its_steps_takes_none_of_another_one(run):
    write_report(run)
    task = run.read_all_tasks()[0]
    (find_start_dir(run, task) / STEP_SECONDS_FILE).unlink()
    after = write_report(run)
    change_record(run, 1)
    after = write_report(run)
    for entry in list_entries():
        entry.unlink()
    assert write_report(run) == after


def test_steps_that_somebody_changed_are_taken_from_no_file(run):
    write_report(run)
    step_file = min(path for path in list_files(make_folder(run)) if path.name == STEPS_FILE)
    step_file.write_bytes(step_file.read_bytes())
    task = next(one for one in run.read_all_tasks() if one.case_id == step_file.parent.name)
    change_record(run, run.read_all_tasks().index(task))
    with note_opened() as names:
        write_report(run)
    assert len(list_records(names)) == len(
        [one for one in run.read_all_tasks() if one.case_id == task.case_id]
    )


def test_change_of_the_file_of_cases_has_all_records_read_again(run):
    write_report(run)
    os.utime(run.path / CASES_FILE)
    with note_opened() as names:
        write_report(run)
    assert len(list_records(names)) == len(run.read_all_tasks())


def test_steps_that_are_gone_are_written_again(run):
    before = write_report(run)
    missing = min(name for name in before if name.endswith(STEPS_FILE))
    (make_folder(run) / missing).unlink()
    assert write_report(run) == before


def test_another_version_of_the_tool_reads_all_records(run, monkeypatch):
    first = write_report(run)
    monkeypatch.setattr(case_index, "_print_code", lambda: ("another",))
    with note_opened() as names:
        assert write_report(run) == first
    assert len(list_records(names)) == len(run.read_all_tasks())


@pytest.mark.parametrize(
    "damage",
    [lambda c: b"", lambda c: c[:-1], lambda c: c[:40] + b"x" + c[41:], lambda c: b"x" * 99],
)
def test_damaged_index_is_made_anew(run, damage):
    first = write_report(run)
    for entry in list_entries():
        entry.write_bytes(damage(entry.read_bytes()))
    assert write_report(run) == first
    with note_opened() as names:
        assert write_report(run) == first
    assert list_records(names) == []


def test_cache_that_cannot_be_written_changes_no_report(run, monkeypatch, tmp_path):
    first = write_report(run)
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert write_report(run) == first


def test_cache_does_not_grow_for_ever(run, monkeypatch):
    monkeypatch.setattr(case_index, "MOST_RUNS", 1)
    above = Path(os.environ["XDG_CACHE_HOME"], "dlperf-slurm", "reports")
    (above / "old").mkdir(parents=True)
    os.utime(above / "old", (0, 0))
    open_index(run)
    assert len(list(above.iterdir())) == 1
    assert not (above / "old").exists()


@pytest.mark.parametrize("value", [os.system, print, Path("x")])
def test_entry_makes_nothing_but_values_of_the_tool(value):
    with pytest.raises(pickle.UnpicklingError):
        decode(pickle.dumps(value))
