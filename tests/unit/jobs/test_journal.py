"""The journal: what a crash leaves readable, and who may submit."""

import dataclasses
import errno
import os
import resource
import stat
import subprocess
import sys
from contextlib import suppress

import pytest

from dlperf_slurm.errors import JournalError, SchedulerError
from dlperf_slurm.files.folders import file_permissions
from dlperf_slurm.jobs.journal import (
    JOURNAL_FILE,
    LOCK_FILE,
    RESERVE_BYTES,
    RESERVE_FILE,
    STATE,
    SUBMITTED,
    SUBMITTING,
    Event,
    append_event,
    append_events,
    append_reserved,
    hold_submit_lock,
    read_journal,
    read_whole_journal,
    release_disk_space,
    reserve_disk_space,
)

FIRST = Event(SUBMITTING, "2024-05-01T12:00:00Z", group_id="1n1g")
SECOND = Event(SUBMITTED, "2024-05-01T12:00:01Z", group_id="1n1g", array_job_id="42")


def test_journal_that_is_missing_empty_or_lost_a_line_is_not_whole(home):
    assert read_whole_journal(home) == ([], False)
    path = home / JOURNAL_FILE
    path.touch()
    assert read_whole_journal(home) == ([], False)
    append_event(home, FIRST)
    path.write_bytes(b"\xff\xfe\n" + path.read_bytes())
    assert read_whole_journal(home) == ([FIRST], False)


@pytest.fixture
def full_disk():
    """Call it for a disk that takes so many more bytes of a file, and refuses the next one."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_event_that_is_not_written_to_the_last_byte_is_an_error(home, full_disk):
    append_event(home, FIRST)
    full_disk((home / JOURNAL_FILE).stat().st_size + 5)
    with pytest.raises(JournalError, match=r"journal\.jsonl: .*File too large"):
        append_event(home, SECOND)
    assert read_journal(home) == [FIRST]


def test_room_that_cannot_be_had_is_an_error(home, full_disk):
    full_disk(RESERVE_BYTES // 2)
    with pytest.raises(JournalError, match=r"free space.*nothing"):
        reserve_disk_space(home)


def test_event_takes_the_room_that_was_reserved_for_it(home, monkeypatch):
    """As on a disk that is full as long as the reserve is there."""
    reserve_disk_space(home)
    assert (home / RESERVE_FILE).stat().st_size == RESERVE_BYTES
    write = os.write

    def refuse(descriptor: int, data: bytes) -> int:
        if (home / RESERVE_FILE).exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    monkeypatch.setattr("os.write", refuse)
    append_reserved(home, SECOND)
    assert read_journal(home) == [SECOND]


def test_room_is_on_disk_before_it_counts_as_reserved_and_is_given_back(home, monkeypatch):
    """What a file system only promises to store, it may refuse when the line is to be written."""
    sizes = []
    monkeypatch.setattr("os.fsync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    reserve_disk_space(home)
    # the file, then its folder
    assert (sizes[0], len(sizes)) == (RESERVE_BYTES, 2)
    for _ in range(2):
        release_disk_space(home)
    assert list(home.glob(".journal*")) == []


def test_lock_is_had_for_reading_where_nothing_can_be_written(home, monkeypatch):
    home.chmod(0o755)
    with file_permissions(0o077), hold_submit_lock(home):
        # those who may read the run cannot hold it
        assert stat.S_IMODE((home / LOCK_FILE).stat().st_mode) == 0o600
        assert not os.umask(0o022) & 0o044
    real = os.open

    def refuse(path, flags: int, *mode: int, **folder: int) -> int:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, *mode, **folder)

    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(JournalError, match="Read-only file system"), hold_submit_lock(home):
        pass
    with hold_submit_lock(home, must_write=False), \
            pytest.raises(SchedulerError, match="another process"), \
            hold_submit_lock(home, must_write=False):  # fmt: skip
        pass


@pytest.mark.parametrize("name", [JOURNAL_FILE, LOCK_FILE, RESERVE_FILE])
def test_link_in_the_place_of_a_file_is_not_written_through(home, tmp_path, name):
    run, precious = tmp_path / "stranger", tmp_path / "precious"
    run.mkdir()
    precious.write_text("mine")
    (run / name).symlink_to(precious)
    with suppress(JournalError):
        append_event(run, FIRST)
    with suppress(JournalError), hold_submit_lock(run):
        pass
    with suppress(JournalError):
        reserve_disk_space(run)
    assert precious.read_text() == "mine"


def test_pipe_in_the_place_of_the_journal_is_refused_at_once(home):
    os.mkfifo(home / JOURNAL_FILE)
    with pytest.raises(JournalError, match=f"{JOURNAL_FILE}: cannot be written: not a regular"):
        append_event(home, FIRST)


def test_events_are_read_as_they_were_written(home):
    odd = Event(
        STATE, "t", "1n1g", "42", 3, "FAILED", 'line\nbreak, \u2003, ü, "quote"', 4, "f", "h"
    )
    append_events(home, [FIRST, SECOND])
    before = (home / JOURNAL_FILE).read_bytes()
    append_event(home, odd)
    assert read_whole_journal(home) == ([FIRST, SECOND, odd], True)
    after = (home / JOURNAL_FILE).read_bytes()
    assert after.startswith(before)
    assert after.count(b"\n") == 3


@pytest.mark.parametrize(("keep", "kept"), [(20, [FIRST]), (-2, [FIRST]), (-1, [FIRST, SECOND])])
def test_line_cut_short_by_a_crash_is_ignored_and_the_next_one_is_readable(home, keep, kept):
    append_events(home, [FIRST, SECOND])
    path = home / JOURNAL_FILE
    first, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + last[:keep])
    assert read_journal(home) == kept
    append_event(home, SECOND)
    assert read_journal(home) == [*kept, SECOND]


def test_events_are_on_disk_before_append_returns(home, monkeypatch):
    path, synced = home / JOURNAL_FILE, []

    def note(descriptor: int) -> None:
        assert os.path.samestat(os.fstat(descriptor), path.stat())
        synced.append(path.read_bytes())

    monkeypatch.setattr("os.fsync", note)
    append_events(home, [FIRST, SECOND])
    assert synced == [path.read_bytes()]


@pytest.mark.parametrize("line", ["{", "{},{}", '{"event": "', "5", "{}"])
def test_line_that_is_no_event_takes_no_other_of_thousands_with_it(home, line):
    before = [dataclasses.replace(FIRST, array_task_id=n) for n in range(1500)]
    after = [dataclasses.replace(SECOND, array_task_id=n) for n in range(1500)]
    append_events(home, before)
    with (home / JOURNAL_FILE).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    append_events(home, after)
    assert read_whole_journal(home) == (before + after, False)


def assert_is_free(home):
    with hold_submit_lock(home) as descriptor:
        assert descriptor > 2


def assert_is_held(home):
    with pytest.raises(SchedulerError, match="another process"), hold_submit_lock(home):
        pass


@pytest.mark.parametrize("is_inherited", [True, False])
def test_lock_lives_as_long_as_a_child_that_inherited_it(home, is_inherited):
    with hold_submit_lock(home) as descriptor:
        inherited = (descriptor,) if is_inherited else ()
        command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=inherited)
    try:
        assert_is_held(home) if is_inherited else assert_is_free(home)
    finally:
        child.communicate()
    assert_is_free(home)
