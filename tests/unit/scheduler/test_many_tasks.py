"""What a look at a run opens does not grow with the array tasks that have ended, as journaled."""

import json
import os
import sys
from dataclasses import replace

import pytest
from builders import show_queue, write_program

from dlperf_slurm.contract.times import format_now
from dlperf_slurm.jobs.journal import STATE, SUBMITTED, Event, append_events, read_whole_journal
from dlperf_slurm.jobs.markers import MARKERS_DIR
from dlperf_slurm.scheduler.state import count_states
from dlperf_slurm.scheduler.track import Tracker

GROUP = "1n1g"
opened: list[str] = []


def note_open(event, arguments):
    if event in ("open", "os.scandir", "os.listdir"):
        opened.append(str(arguments[0]))


@pytest.fixture(scope="module", autouse=True)
def watched_files():
    """Python never forgets such a hook; it only lists names."""
    sys.addaudithook(note_open)


@pytest.fixture
def run(bin_dir, staged_run):
    """A run of which nothing is in the queue, or in accounting."""
    show_queue(bin_dir)
    write_program(bin_dir, "sacct", "true")
    return staged_run


def finish(run, count):
    """Give the first group so many array tasks, all journaled as completed."""
    folder = run.read_tasks(GROUP)[0].attempt_dir.rpartition("/r")[0]
    lines = [f"pytorch\t{folder}/r{number + 1}/a1\tsrun\t-\t0\t0\n" for number in range(count)]
    run.find_tasks_file(GROUP).write_text("".join(lines), encoding="utf-8")
    time = format_now()
    events = [Event(SUBMITTED, time, GROUP, "1")]
    for number in range(count):
        ended = Event(STATE, time, GROUP, "1", number, "COMPLETED", start=0, files="0 0e 0s")
        events.append(ended)
        (run.path / MARKERS_DIR / f"{GROUP}.{number}.s0.finished").touch()
    append_events(run.path, events)


def look(run):
    """The counts of states, and how many files and folders were opened for them."""
    opened.clear()
    states = Tracker(run, trusts_journal=True).refresh(ask_scheduler=True)
    return count_states(states), len(opened)


@pytest.mark.integration
def test_opened_files_do_not_grow_with_the_array_tasks_that_have_ended(run):
    finish(run, 1000)
    counts, of_thousand = look(run)
    assert counts["COMPLETED"] == 1000
    finish(run, 2000)
    counts, of_two_thousand = look(run)
    assert counts["COMPLETED"] == 2000
    assert 5 < of_two_thousand == of_thousand < 100


def test_start_that_the_journal_does_not_know_is_looked_at_though_it_is_trusted(run):
    finish(run, 3)
    (run.path / MARKERS_DIR / f"{GROUP}.1.s1.started").touch()
    (run.path / MARKERS_DIR / f"{GROUP}.2.s0.finished").unlink()
    counts, _ = look(run)
    assert counts["COMPLETED"] == 1


def test_marker_that_comes_or_goes_between_two_looks_is_seen(run):
    finish(run, 2)
    tracker = Tracker(run, trusts_journal=True)
    first = tracker.refresh(ask_scheduler=True)[:2]
    assert {state.state for state in first} == {"COMPLETED"}
    (run.path / MARKERS_DIR / f"{GROUP}.0.s1.started").touch()
    (run.path / MARKERS_DIR / f"{GROUP}.1.s0.finished").unlink()
    later = tracker.refresh(ask_scheduler=True)[:2]
    assert "COMPLETED" not in {state.state for state in later}


def test_journal_that_was_replaced_since_is_read_anew(run):
    finish(run, 2)
    events, _ = read_whole_journal(run.path)
    path = run.path / "journal.jsonl"
    lines = [json.dumps(vars(replace(event, host="elsewhere"))) + "\n" for event in events]
    path.write_text("".join(lines), encoding="utf-8")
    assert {event.host for event in read_whole_journal(run.path)[0]} == {"elsewhere"}


def test_line_of_the_journal_that_is_being_written_counts_once_it_is_whole(run):
    line = json.dumps(vars(Event(STATE, format_now(), GROUP)))
    before, _ = read_whole_journal(run.path)
    path = run.path / "journal.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write(line[:20])
    assert read_whole_journal(run.path) == (before, False)
    with path.open("a", encoding="utf-8") as file:
        file.write(line[20:] + os.linesep)
    events, is_whole = read_whole_journal(run.path)
    assert is_whole
    assert events[:-1] == before
