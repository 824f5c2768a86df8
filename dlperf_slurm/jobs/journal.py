"""The append-only journal.jsonl of a run <-> its events: submissions and state changes."""

import dataclasses
import fcntl
import io
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlperf_slurm.config.folders import get_host_name
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.errors import InputError, JournalError, SchedulerError
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.folders import open_folder, run_permissions
from dlperf_slurm.files.reading import MIB, open_file, read_bytes
from dlperf_slurm.files.writing import open_to_append, remove_file, write_all, write_file

JOURNAL_FILE = "journal.jsonl"
LOCK_FILE = "submit.lock"
LOCK_POLL_SECONDS = 0.5
# how long a command that follows a run waits for another process that is submitting
LOCK_TIMEOUT_SECONDS = 60.0
# disk space that is reserved for the lines that follow an sbatch
RESERVE_FILE = ".journal-reserve"
RESERVE_BYTES = 64 * 1024
# about 200 bytes for each of several state changes of 100,000 array tasks
JOURNAL_LIMIT_BYTES = 128 * MIB

# the kinds of events, in the order of a run's life
STAGED = "staged"
SUBMITTING = "submitting"
SUBMITTED = "submitted"
REFUSED = "refused"
# site values were changed for groups that are not submitted yet
AMENDED = "amended"
STATE = "state"
# Slurm reports COMPLETED, but the job script left no marker
UNMARKED = "unmarked"
CANCELLED = "cancelled"
TRACKED = "tracked"


@dataclass(frozen=True)
class Event:
    """One line of the journal; fields that do not apply to an event are empty.

    `event` is the kind, such as SUBMITTED. `time`, by default now, is by the clock of `host`. A
    state refers to the execution number `start` of the job script; `files` is the fingerprint of
    the files that it is based on.
    """

    event: str
    time: str = dataclasses.field(default_factory=format_now)
    group_id: str = ""
    array_job_id: str = ""
    array_task_id: int = -1
    state: str = ""
    detail: str = ""
    start: int = -1
    files: str = ""
    host: str = dataclasses.field(default_factory=get_host_name)


def append_events(run_dir: Path, events: Sequence[Event]) -> None:
    """Append events to a run's journal and sync them to disk.

    Raises JournalError if they cannot be written completely; readers skip a truncated line.
    """
    text = "".join(json.dumps(vars(e), sort_keys=True) + "\n" for e in events)
    path = run_dir / JOURNAL_FILE
    try:
        with run_permissions(run_dir), open_to_append(path, root=run_dir) as descriptor:
            if not _ends_with_newline(descriptor):
                # separate the new lines from a truncated one
                text = "\n" + text
            write_all(descriptor, text.encode())
            os.fsync(descriptor)
    except FileProblem as error:
        raise JournalError(str(error)) from error
    except OSError as error:
        raise JournalError(f"{path}: cannot be written: {error.strerror}") from error


def append_event(run_dir: Path, event: Event) -> None:
    """Append one event to a run's journal; raise JournalError as `append_events`."""
    append_events(run_dir, [event])


def append_reserved(run_dir: Path, event: Event) -> None:
    """Append an event that must not be lost: if the disk is full, to the space reserved for it.

    `reserve_disk_space` made that reserve. Raises JournalError if the event cannot be written even
    then.
    """
    try:
        append_event(run_dir, event)
    except JournalError:
        release_disk_space(run_dir)
        append_event(run_dir, event)


def reserve_disk_space(run_dir: Path) -> None:
    """Reserve disk space for the journal lines that follow an sbatch; raises JournalError.

    The reserve is a file of random bytes, which no file system can compress: `append_reserved`
    frees it for a line that could not be written, else `release_disk_space` at the end.
    """
    path = run_dir / RESERVE_FILE
    try:
        if not path.is_file() or path.stat().st_size != RESERVE_BYTES:
            write_file(path, os.urandom(RESERVE_BYTES), root=run_dir, is_synced=True)
    except OSError as error:
        raise JournalError(
            f"{run_dir}: no free space to write the journal: {error}; nothing was submitted"
        ) from error


def release_disk_space(run_dir: Path) -> None:
    """Release the disk space that `reserve_disk_space` reserved."""
    with suppress(OSError):
        remove_file(run_dir / RESERVE_FILE, root=run_dir)


def _ends_with_newline(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"


def read_journal(run_dir: Path) -> list[Event]:
    """Read a run's valid events, oldest first; [] without a journal, InputError if unreadable."""
    return read_whole_journal(run_dir)[0]


def read_whole_journal(run_dir: Path) -> tuple[list[Event], bool]:
    """Read all events; also return whether the journal is complete: not empty, no line damaged.

    A caller finds what a damaged line said in the scripts, markers, claims and records. Returns
    ([], False) without a journal. Raises InputError, which names the file, if it cannot be read.
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
    """The complete lines of a journal that this process has parsed, with their digest."""

    path: Path
    size: int = 0
    digest: int = hash(b"")
    events: list[Event] = dataclasses.field(default_factory=list)
    is_whole: bool = True


# a cache of the journal that was read last, so that polling parses only its new lines
_last_read = _ReadLines(Path())


def _read_events(path: Path, data: bytes) -> tuple[list[Event], bool]:
    """Parse the bytes of a journal into events; also return whether every line is an event."""
    global _last_read
    read = _last_read
    view = memoryview(data)
    if read.path != path or read.digest != hash(view[: read.size]):
        _last_read = read = _ReadLines(path)
    # the last line may be incomplete, and is parsed again the next time
    size = data.rfind(b"\n") + 1
    if size != read.size:
        fresh, is_whole = _parse_lines(data[read.size : size], path)
        read.events.extend(fresh)
        read.is_whole = read.is_whole and is_whole
        read.size, read.digest = size, hash(view[:size])
    rest, is_rest_whole = _parse_lines(data[size:], path)
    return read.events + rest, read.is_whole and is_rest_whole


def _parse_lines(data: bytes, path: Path) -> tuple[list[Event], bool]:
    # imported here, as a plan has no journal yet
    from dlperf_slurm.jobs.decode import decode

    events: list[Event] = []
    is_whole = True
    where = str(path)
    # a JSON string cannot contain a line end, so damage stays within its line
    for line in filter(None, (line.rstrip(b"\n") for line in io.BytesIO(data))):
        try:
            values: dict[str, Any] = vars(decode(Event, line, where))
        except FileProblem:
            is_whole = False
            continue
        # Interned, so that repeated words share their memory. Objects from the class's own
        # constructor share their keys, and take half the memory.
        words: dict[str, Any] = {
            k: sys.intern(v) if type(v) is str else v for k, v in values.items()
        }
        events.append(Event(**words))
    return events, is_whole


@contextmanager
def hold_submit_lock(
    run_dir: Path, must_write: bool = True, timeout_seconds: float = 0.0
) -> Iterator[int]:
    """Hold the submit lock of a run in this context; yield its file descriptor.

    The lock lives as long as any process that inherited the descriptor: an sbatch whose parent was
    killed still holds the lock, so that no other process looks for its job too early. Raises
    SchedulerError if another process holds the lock for more than `timeout_seconds`; JournalError
    if the lock file is not writable. With `must_write` false, as for `cancel`, an unwritable lock
    file is no error, and the lock is taken only if the file system allows it.
    """
    path = run_dir / LOCK_FILE
    with ExitStack() as stack:
        # sbatch passes this umask on to the job
        stack.enter_context(run_permissions(run_dir))
        try:
            # flock(2) takes a lock also for those who may only read the file
            descriptor = stack.enter_context(open_to_append(path, root=run_dir, mode=0o600))
        except FileProblem as error:
            if must_write:
                raise JournalError(str(error)) from error
            try:
                descriptor = stack.enter_context(open_file(path, root=run_dir)).fileno()
            except OSError:
                descriptor = stack.enter_context(open_folder(run_dir))
        deadline = time.monotonic() + timeout_seconds
        try:
            while not _take_lock(descriptor):
                if time.monotonic() >= deadline:
                    raise SchedulerError(
                        f"{run_dir}: another process is submitting this run; wait until it ends, "
                        "or end it, then try again"
                    )
                time.sleep(LOCK_POLL_SECONDS)
        except OSError:
            # NFS gives no exclusive lock on a file that is open for reading only
            if must_write:
                raise
        yield descriptor


def _take_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
