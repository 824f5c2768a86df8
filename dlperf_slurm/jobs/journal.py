"""journal.jsonl: every submission and state change of a run, appended and synced, never edited."""

import dataclasses
import fcntl
import hashlib
import io
import itertools
import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlperf_slurm.contract.json_files import ContractError
from dlperf_slurm.errors import InputError, JournalError, SchedulerError
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.folders import open_folder, run_permissions
from dlperf_slurm.files.reading import MIB, open_file, parse_json, read_bytes
from dlperf_slurm.files.writing import open_to_append, remove_file, write_all, write_file
from dlperf_slurm.jobs.decode import build

JOURNAL_FILE = "journal.jsonl"
LOCK_FILE = "submit.lock"
LOCK_POLL_SECONDS = 0.5
# how long a command that follows a run waits for another one that submits a part of it
LOCK_PATIENCE_SECONDS = 60.0
# room on the disk for the lines that follow an sbatch
RESERVE_FILE = ".journal-reserve"
RESERVE_BYTES = 64 * 1024
# some 200 bytes for each change of state of 100,000 array tasks, several times over
JOURNAL_LIMIT_BYTES = 128 * MIB

# the kinds of events, in the order of a run's life
STAGED = "staged"
SUBMITTING = "submitting"
SUBMITTED = "submitted"
REFUSED = "refused"
# site values were changed for what was not submitted yet
MENDED = "mended"
STATE = "state"
# the scheduler says that it completed, and its script left no marker
UNMARKED = "unmarked"
CANCELLED = "cancelled"
TRACKED = "tracked"


@dataclass(frozen=True)
class Event:
    """One line of the journal; a field that an event has no use for is empty.

    `time` is by the clock of `host`. `start` is the number of the start that a state is about,
    `files` the print of the files that it was judged by.
    """

    event: str
    time: str
    group_id: str = ""
    array_job_id: str = ""
    array_task_id: int = -1
    state: str = ""
    detail: str = ""
    start: int = -1
    files: str = ""
    host: str = dataclasses.field(default_factory=socket.gethostname)


# lines that are parsed as one text, whose values are there at once
_LINES_AT_ONCE = 1000


def append_events(run_dir: Path, events: Sequence[Event]) -> None:
    """Append the events and wait until they are on disk.

    Raises JournalError where they cannot be written to the last byte; a line that was cut short
    by that is passed over by readers.
    """
    text = "".join(json.dumps(vars(e), sort_keys=True) + "\n" for e in events)
    path = run_dir / JOURNAL_FILE
    try:
        with run_permissions(run_dir), open_to_append(path, root=run_dir) as descriptor:
            if not _ends_with_newline(descriptor):
                # a line that was cut short stays apart from these
                text = "\n" + text
            write_all(descriptor, text.encode())
            os.fsync(descriptor)
    except FileProblem as error:
        raise JournalError(str(error)) from error
    except OSError as error:
        raise JournalError(f"{path}: cannot be written: {error.strerror}") from error


def append_event(run_dir: Path, event: Event) -> None:
    """Append one event; raises JournalError as `append_events` does."""
    append_events(run_dir, [event])


def append_reserved(run_dir: Path, event: Event) -> None:
    """Append an event that must not be lost, if need be in the room that `reserve_room` took.

    Raises JournalError where it cannot be written nevertheless.
    """
    try:
        append_event(run_dir, event)
    except JournalError:
        release_room(run_dir)
        append_event(run_dir, event)


def reserve_room(run_dir: Path) -> None:
    """Take room on the disk for what has to be journaled after an sbatch; raises JournalError.

    It is a file of random bytes, which no file system stores in less.
    """
    path = run_dir / RESERVE_FILE
    try:
        if not path.is_file() or path.stat().st_size != RESERVE_BYTES:
            write_file(path, os.urandom(RESERVE_BYTES), root=run_dir, is_synced=True)
    except OSError as error:
        raise JournalError(
            f"{run_dir}: has no room for the journal: {error}; nothing was submitted"
        ) from error


def release_room(run_dir: Path) -> None:
    """Give back what `reserve_room` took."""
    with suppress(OSError):
        remove_file(run_dir / RESERVE_FILE, root=run_dir)


def _ends_with_newline(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"


def read_journal(run_dir: Path) -> list[Event]:
    """The events so far, the oldest first; a line that was damaged is left out."""
    return read_whole_journal(run_dir)[0]


def read_whole_journal(run_dir: Path) -> tuple[list[Event], bool]:
    """The events so far, and whether all lines are there: a journal is never staged empty.

    What a damaged line said is in the scripts, markers, claims and records too.
    Raises InputError, which names the file, when it is none to be read.
    """
    path = run_dir / JOURNAL_FILE
    try:
        data = read_bytes(path, JOURNAL_LIMIT_BYTES, root=run_dir)
    except FileNotFoundError:
        return [], False
    except FileProblem as error:
        raise InputError(str(error)) from error
    events, is_whole = _read_events(path, data)
    return events, is_whole and bool(events)


@dataclass
class _ReadLines:
    """The whole lines of a journal that this process has read, with the digest of their bytes."""

    path: Path
    size: int = 0
    digest: bytes = b""
    events: list[Event] = dataclasses.field(default_factory=list)
    is_whole: bool = True


# of the journal that was read last: of one with 100,000 events, only what is new is looked at
_last_read = _ReadLines(Path())


def _read_events(path: Path, data: bytes) -> tuple[list[Event], bool]:
    """The events of a journal's bytes, and whether each line holds one."""
    global _last_read
    read = _last_read
    view = memoryview(data)
    if read.path != path or read.digest != _digest(view[: read.size]):
        _last_read = read = _ReadLines(path)
    # a line that is being written, or was cut short, may be another one the next time
    size = data.rfind(b"\n") + 1
    if size != read.size:
        fresh, is_whole = _parse_lines(data[read.size : size], path)
        read.events.extend(fresh)
        read.is_whole = read.is_whole and is_whole
        read.size, read.digest = size, _digest(view[:size])
    rest, is_rest_whole = _parse_lines(data[size:], path)
    return read.events + rest, read.is_whole and is_rest_whole


def _digest(data: memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _parse_lines(data: bytes, path: Path) -> tuple[list[Event], bool]:
    events: list[Event] = []
    is_whole = True
    where = str(path)
    lines = (line.rstrip(b"\n") for line in io.BytesIO(data))
    written = filter(None, lines)
    while chunk := list(itertools.islice(written, _LINES_AT_ONCE)):
        for values in _parse_chunk(chunk, where):
            try:
                events.append(_build_event(values, where))
            except (ContractError, TypeError):
                is_whole = False
    return events, is_whole


def _parse_chunk(lines: Sequence[bytes], where: str) -> Sequence[Any]:
    """What each line holds; None for one that is no JSON."""
    try:
        # no text goes on past the end of its line
        values: Sequence[Any] = parse_json((b"[" + b",\n".join(lines) + b"]").decode(), where)
        if len(values) == len(lines):
            return values
    except (FileProblem, UnicodeDecodeError):
        pass
    return [None] if len(lines) == 1 else [_parse_chunk([line], where)[0] for line in lines]


def _build_event(values: Any, where: str) -> Event:
    """Raises ContractError or TypeError for what is no event."""
    # the same few words in each line take the room of one
    shared = {
        key: sys.intern(value) if type(value) is str else value for key, value in {**values}.items()
    }
    # built by its own constructor it shares its keys with all others, and takes half the memory
    return Event(**vars(build(Event, shared, where)))


@contextmanager
def hold_submit_lock(
    run_dir: Path, must_write: bool = True, patience_seconds: float = 0.0
) -> Iterator[int]:
    """Hold the lock of a run's submission; yields a descriptor for the scheduler's client.

    The lock lives as long as any process that inherited the descriptor: an sbatch whose parent
    was killed still holds it, so that nobody looks for its job before it is there.
    Raises SchedulerError when another process holds it for longer than that is waited for;
    JournalError where it cannot be written, unless nothing `must_write`: who only cancels then goes
    on with the lock if it can be had.
    """
    with _open_lock(run_dir, must_write) as descriptor:
        deadline = time.monotonic() + patience_seconds
        try:
            while not _take_lock(descriptor):
                if time.monotonic() >= deadline:
                    raise SchedulerError(
                        f"{run_dir}: another process is submitting this run; end it or wait until "
                        "it is done, and try again"
                    )
                time.sleep(LOCK_POLL_SECONDS)
        except OSError:
            # of a file that is open for reading NFS locks nothing for writing
            if must_write:
                raise
        yield descriptor


def _take_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _open_lock(run_dir: Path, must_write: bool) -> Iterator[int]:
    path = run_dir / LOCK_FILE
    with ExitStack() as stack:
        # what is submitted has this umask too
        stack.enter_context(run_permissions(run_dir))
        try:
            descriptor = stack.enter_context(open_to_append(path, root=run_dir))
        except FileProblem as error:
            if must_write:
                raise JournalError(str(error)) from error
            try:
                descriptor = stack.enter_context(open_file(path, root=run_dir)).fileno()
            except OSError:
                descriptor = stack.enter_context(open_folder(run_dir))
        yield descriptor
