"""Final states that the journal has hold without a look into files that have not changed."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_failed_record, make_record, read_case, show_queue, write_program

from dlperf_slurm.contract.json_files import write_json
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.jobs.journal import (
    STATE,
    SUBMITTED,
    Event,
    append_event,
    append_events,
    read_whole_journal,
)
from dlperf_slurm.jobs.markers import MARKERS_DIR
from dlperf_slurm.scheduler.state import count_states
from dlperf_slurm.scheduler.track import Tracker

GROUP = "1n1g"
FINAL = ["FAILED", *["COMPLETED"] * 5]
opened: list[str] = []


def note_open(event, arguments):
    if event in ("open", "os.scandir", "os.listdir"):
        opened.append(
            os.fsdecode(arguments[0]) if isinstance(arguments[0], bytes) else arguments[0]
        )


@pytest.fixture(scope="module", autouse=True)
def watched_files():
    """Python never forgets such a hook; it only lists names."""
    sys.addaudithook(note_open)


@pytest.fixture
def run(bin_dir, staged_run):
    """Return a run that neither the queue nor accounting knows."""
    show_queue(bin_dir)
    write_program(bin_dir, "sacct", "true")
    return staged_run


def write_marker(run, task, kind, start=0):
    marker = {"job_id": "1", "time": format_now(), "nodes": "n1", "exit_code": 0}
    path = run.path / MARKERS_DIR / f"{task.marker}.s{start}.{kind}"
    path.write_text(json.dumps(marker), encoding="utf-8")


@pytest.fixture
def ended_run(run):
    """All its array tasks have ended: the first badly, the others with a valid record."""
    for number, group_id in enumerate(run.list_group_ids(), start=1):
        append_event(run.path, Event(SUBMITTED, format_now(), group_id, str(number)))
    for index, task in enumerate(run.read_all_tasks()):
        case = read_case(run, task)
        folder = run.path / task.attempt_dir / "s0"
        folder.mkdir(parents=True)
        record = make_record(case) if index else make_failed_record(case)
        write_json(folder / "record.json", record)
        write_marker(run, task, "finished")
    return run


def look(run):
    """Return the states in a new tracker, and how many records it opened."""
    opened.clear()
    states = [state.state for state in Tracker(run).refresh(ask_scheduler=True)]
    return states, sum(str(name).endswith("record.json") for name in opened)


@pytest.mark.parametrize("name", ["record.json", "step_seconds.npy"])
def test_only_files_that_were_written_since_are_opened(ended_run, name):
    assert look(ended_run) == (FINAL, 6)
    assert look(ended_run) == (FINAL, 0)
    path = ended_run.path / ended_run.read_all_tasks()[1].attempt_dir / "s0" / name
    # the same bytes, written again
    os.utime(path.with_name("record.json"), ns=(1, 1))
    assert look(ended_run) == (FINAL, 1)
    path.write_bytes(b"{")
    assert look(ended_run) == (["FAILED", "FAILED", *["COMPLETED"] * 4], 1)


def test_start_that_came_since_is_looked_at(ended_run):
    look(ended_run)
    write_marker(ended_run, ended_run.read_all_tasks()[0], "started", start=1)
    states, _ = look(ended_run)
    assert states[0] != "FAILED"


def test_state_that_names_no_files_is_decided_by_those_that_are_there(ended_run):
    for task in ended_run.read_all_tasks():
        event = Event(STATE, format_now(), task.group_id, "1", task.array_task_id, "COMPLETED")
        append_event(ended_run.path, replace(event, start=0))
    assert look(ended_run) == (FINAL, 6)


def finish(run, count):
    """Give the first group so many array tasks, all journaled as completed."""
    folder = run.read_tasks(GROUP)[0].attempt_dir.rpartition("/r")[0]
    lines = [f"pytorch\t{folder}/r{number + 1}/a1\tsrun\t-\t0\t0\n" for number in range(count)]
    run.get_tasks_path(GROUP).write_text("".join(lines), encoding="utf-8")
    event = Event(STATE, format_now(), GROUP, "1", 0, "COMPLETED", start=0, files="0 0e 0s")
    ended = [replace(event, array_task_id=number) for number in range(count)]
    append_events(run.path, [Event(SUBMITTED, format_now(), GROUP, "1"), *ended])
    for number in range(count):
        (run.path / MARKERS_DIR / f"{GROUP}.{number}.s0.finished").touch()


def look_at_journal(run):
    """How many have completed, and how many files and folders were opened for that."""
    opened.clear()
    states = Tracker(run, trusts_journal=True).refresh(ask_scheduler=True)
    return count_states(states).get("COMPLETED"), len(opened)


@pytest.mark.integration
def test_opened_files_do_not_grow_with_the_array_tasks_that_have_ended(run):
    finish(run, 1000)
    completed, of_thousand = look_at_journal(run)
    assert completed == 1000
    finish(run, 2000)
    completed, of_two_thousand = look_at_journal(run)
    assert completed == 2000
    assert 5 < of_two_thousand == of_thousand < 100


def change_markers(run):
    (run.path / MARKERS_DIR / f"{GROUP}.0.s1.started").touch()
    (run.path / MARKERS_DIR / f"{GROUP}.1.s0.finished").unlink()


def test_start_that_the_journal_does_not_know_is_looked_at_though_it_is_trusted(run):
    finish(run, 3)
    change_markers(run)
    assert look_at_journal(run)[0] == 1


def test_marker_that_comes_or_goes_between_two_looks_is_seen(run):
    finish(run, 2)
    tracker = Tracker(run, trusts_journal=True)
    first = tracker.refresh(ask_scheduler=True)[:2]
    assert {state.state for state in first} == {"COMPLETED"}
    change_markers(run)
    later = tracker.refresh(ask_scheduler=True)[:2]
    assert "COMPLETED" not in {state.state for state in later}


def test_journal_that_was_replaced_since_is_read_anew(run):
    finish(run, 2)
    events, _ = read_whole_journal(run.path)
    lines = [json.dumps(vars(replace(event, host="elsewhere"))) + "\n" for event in events]
    (run.path / "journal.jsonl").write_text("".join(lines), encoding="utf-8")
    assert {event.host for event in read_whole_journal(run.path)[0]} == {"elsewhere"}


def test_line_of_the_journal_that_is_being_written_counts_once_it_is_whole(run):
    line = json.dumps(vars(Event(STATE, format_now(), GROUP)))
    before, _ = read_whole_journal(run.path)
    with Path(run.path / "journal.jsonl").open("a", encoding="utf-8") as file:
        file.write(line[:20])
        file.flush()
        assert read_whole_journal(run.path) == (before, False)
        file.write(line[20:] + os.linesep)
    events, is_whole = read_whole_journal(run.path)
    assert (is_whole, events[:-1]) == (True, before)
