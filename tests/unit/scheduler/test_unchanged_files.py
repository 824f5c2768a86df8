"""Final states that the journal has hold without a look into files that have not changed."""

import json
import os
import sys
from pathlib import Path

import pytest
from builders import make_failed_record, make_record, read_case, show_queue, write_program

from dlperf_slurm.contract.json_files import write_json
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.jobs.journal import STATE, SUBMITTED, Event, append_event, read_journal
from dlperf_slurm.jobs.markers import MARKERS_DIR
from dlperf_slurm.scheduler.track import Tracker

opened: list[str] = []


def note_open(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        opened.append(Path(os.fsdecode(arguments[0])).name)


@pytest.fixture(scope="module", autouse=True)
def watched_files():
    """Python never forgets such a hook; it only lists names."""
    sys.addaudithook(note_open)


@pytest.fixture
def ended_run(bin_dir, staged_run):
    """All its array tasks have ended: the first badly, the others with a sound record."""
    show_queue(bin_dir)
    write_program(bin_dir, "sacct", "true")
    for number, group_id in enumerate(staged_run.list_group_ids(), start=1):
        event = Event(SUBMITTED, format_now(), group_id=group_id, array_job_id=str(number))
        append_event(staged_run.path, event)
    for index, task in enumerate(staged_run.read_all_tasks()):
        case = read_case(staged_run, task)
        folder = staged_run.path / task.attempt_dir / "s0"
        folder.mkdir(parents=True)
        record = make_record(case) if index else make_failed_record(case)
        write_json(folder / "record.json", record)
        write_marker(staged_run, task, "finished")
    return staged_run


def write_marker(run, task, kind, start=0):
    marker = {"job_id": "1", "time": format_now(), "nodes": "n1", "exit_code": 0}
    path = run.path / MARKERS_DIR / f"{task.marker}.s{start}.{kind}"
    path.write_text(json.dumps(marker), encoding="utf-8")


def look(run):
    """The states as a new process finds them, and how often a record was opened for that."""
    opened.clear()
    states = [state.state for state in Tracker(run).refresh(ask_scheduler=True)]
    return states, opened.count("record.json")


FINAL = ["FAILED", *["COMPLETED"] * 5]


def test_second_look_opens_no_record(ended_run):
    assert look(ended_run) == (FINAL, 6)
    assert look(ended_run) == (FINAL, 0)


@pytest.mark.parametrize("name", ["record.json", "step_seconds.npy"])
def test_file_that_was_written_since_is_looked_at(ended_run, name):
    look(ended_run)
    path = ended_run.path / ended_run.read_all_tasks()[1].attempt_dir / "s0" / name
    path.write_bytes(b"{")
    assert look(ended_run) == (["FAILED", "FAILED", *["COMPLETED"] * 4], 1)


def test_same_bytes_that_were_written_again_are_looked_at(ended_run):
    look(ended_run)
    path = ended_run.path / ended_run.read_all_tasks()[1].attempt_dir / "s0" / "record.json"
    os.utime(path, ns=(1, 1))
    assert look(ended_run) == (FINAL, 1)


def test_start_that_came_since_is_looked_at(ended_run):
    look(ended_run)
    write_marker(ended_run, ended_run.read_all_tasks()[0], "started", start=1)
    states, _ = look(ended_run)
    assert states[0] != "FAILED"


def test_state_that_names_no_files_is_judged_by_those_that_are_there(ended_run):
    for task in ended_run.read_all_tasks():
        event = Event(
            STATE, format_now(), task.group_id, "1", task.array_task_id, "COMPLETED", start=0
        )
        append_event(ended_run.path, event)
    assert {event.files for event in read_journal(ended_run.path)} == {""}
    assert look(ended_run) == (FINAL, 6)
