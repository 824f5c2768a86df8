"""The journal: what a crash leaves readable, and who may submit."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.jobs.journal import (
    JOURNAL_FILE,
    STATE,
    SUBMITTED,
    SUBMITTING,
    Event,
    append_event,
    append_events,
    hold_submit_lock,
    read_journal,
)

FIRST = Event(SUBMITTING, "2024-05-01T12:00:00Z", group_id="1n1g")
SECOND = Event(SUBMITTED, "2024-05-01T12:00:01Z", group_id="1n1g", array_job_id="42")
# as a child that waits for the end of its standard input, and holds what it inherited until then
WAIT = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def cut_last_line(path, keep: int) -> None:
    """Leave only the first bytes of the last line, as a machine that dies would."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:keep])


def test_run_without_a_journal_has_no_events(home):
    assert read_journal(home) == []


def test_events_are_read_in_the_order_they_were_written(home):
    append_events(home, [FIRST, SECOND])
    append_event(home, FIRST)
    assert read_journal(home) == [FIRST, SECOND, FIRST]


def test_every_field_survives(home):
    event = Event(STATE, "t", "1n1g", "42", 3, "FAILED", 'line\nbreak, \u2028, ü, "quote"')
    append_event(home, event)
    assert read_journal(home) == [event]


def test_event_is_one_line_of_json(home):
    append_event(home, dataclasses.replace(FIRST, detail="a\nb\u2028c"))
    text = (home / JOURNAL_FILE).read_text(encoding="utf-8")
    assert [json.loads(line)["detail"] for line in text.split("\n")[:-1]] == ["a\nb\u2028c"]


@pytest.mark.parametrize("keep", [1, 20, -1])
def test_line_cut_short_by_a_crash_is_ignored(home, keep):
    append_events(home, [FIRST, dataclasses.replace(SECOND, detail="ü")])
    cut_last_line(home / JOURNAL_FILE, keep - 1 if keep < 0 else keep)
    assert read_journal(home) == [FIRST]


def test_append_after_a_cut_line_stays_readable(home):
    append_events(home, [FIRST, SECOND])
    cut_last_line(home / JOURNAL_FILE, 20)
    append_event(home, SECOND)
    assert read_journal(home) == [FIRST, SECOND]


def test_line_that_lost_only_its_newline_still_counts(home):
    append_events(home, [FIRST, SECOND])
    cut_last_line(home / JOURNAL_FILE, -1)
    append_event(home, FIRST)
    assert read_journal(home) == [FIRST, SECOND, FIRST]


def test_events_are_on_disk_before_append_returns(home, monkeypatch):
    path, synced = home / JOURNAL_FILE, []

    def note(descriptor: int) -> None:
        assert os.path.samestat(os.fstat(descriptor), path.stat())
        synced.append(path.read_bytes())

    monkeypatch.setattr("os.fsync", note)
    append_events(home, [FIRST, SECOND])
    assert synced == [path.read_bytes()]


def test_append_never_changes_what_is_there(home):
    append_event(home, FIRST)
    before = (home / JOURNAL_FILE).read_bytes()
    append_event(home, SECOND)
    assert (home / JOURNAL_FILE).read_bytes().startswith(before)


@pytest.mark.parametrize("line", ["5", "[]", "{}", '{"event": "x", "tme": "y"}', "null"])
def test_line_that_is_no_event_is_ignored(home, line):
    (home / JOURNAL_FILE).write_text(f"{line}\n", encoding="utf-8")
    append_event(home, FIRST)
    assert read_journal(home) == [FIRST]


def test_lock_refuses_a_second_holder(home):
    with hold_submit_lock(home), pytest.raises(SchedulerError, match="another process"), \
            hold_submit_lock(home):  # fmt: skip
        pass


def test_lock_is_free_after_its_holder(home):
    with hold_submit_lock(home):
        pass
    with hold_submit_lock(home) as descriptor:
        assert descriptor > 2


def test_lock_is_free_after_a_failure_of_its_holder(home):
    with pytest.raises(ZeroDivisionError), hold_submit_lock(home):
        raise ZeroDivisionError
    with hold_submit_lock(home) as descriptor:
        assert descriptor > 2


def test_lock_is_kept_by_a_child_that_inherited_it(home):
    with hold_submit_lock(home) as descriptor:
        child = subprocess.Popen(WAIT, stdin=subprocess.PIPE, pass_fds=(descriptor,))
    try:
        with pytest.raises(SchedulerError, match="another process"), hold_submit_lock(home):
            pass
    finally:
        child.communicate()


def test_lock_ends_with_the_child_that_inherited_it(home):
    with hold_submit_lock(home) as descriptor:
        child = subprocess.Popen(WAIT, stdin=subprocess.PIPE, pass_fds=(descriptor,))
    child.communicate()
    with hold_submit_lock(home) as again:
        assert again > 2


def test_lock_is_not_kept_by_other_children(home):
    with hold_submit_lock(home):
        child = subprocess.Popen(WAIT, stdin=subprocess.PIPE)
    try:
        with hold_submit_lock(home) as again:
            assert again > 2
    finally:
        child.communicate()
