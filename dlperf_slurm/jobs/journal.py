"""journal.jsonl: every submission and state change of a run, appended and synced, never edited."""

import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dlperf_slurm.errors import SchedulerError

JOURNAL_FILE = "journal.jsonl"
LOCK_FILE = "submit.lock"

# the kinds of events, in the order of a run's life
STAGED = "staged"
SUBMITTING = "submitting"
SUBMITTED = "submitted"
REFUSED = "refused"
STATE = "state"
# the scheduler says that it completed, and its script left no marker
UNMARKED = "unmarked"
CANCELLED = "cancelled"
TRACKED = "tracked"


@dataclass(frozen=True)
class Event:
    """One line of the journal; a field that an event has no use for is empty."""

    event: str
    time: str
    group_id: str = ""
    array_job_id: str = ""
    array_task_id: int = -1
    state: str = ""
    detail: str = ""


def append_events(run_dir: Path, events: Sequence[Event]) -> None:
    """Append the events in a single write and wait until they are on disk."""
    text = "".join(json.dumps(dataclasses.asdict(e), sort_keys=True) + "\n" for e in events)
    path = run_dir / JOURNAL_FILE
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        if not _ends_with_newline(path):
            # a line that a dying machine cut short stays apart from these
            text = "\n" + text
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_event(run_dir: Path, event: Event) -> None:
    """Append one event."""
    append_events(run_dir, [event])


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def read_journal(run_dir: Path) -> list[Event]:
    """The events so far, the oldest first; a line that was cut short by a crash is left out."""
    events: list[Event] = []
    path = run_dir / JOURNAL_FILE
    if not path.exists():
        return events
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            events.append(Event(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return events


@contextmanager
def hold_submit_lock(run_dir: Path) -> Iterator[int]:
    """Hold the lock of a run's submission; yields a descriptor for the scheduler's client.

    The lock lives as long as any process that inherited the descriptor: an sbatch whose parent
    was killed still holds it, so that nobody looks for its job before it is there.
    Raises SchedulerError when another process holds it.
    """
    descriptor = os.open(run_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SchedulerError(
                f"{run_dir}: another process is submitting this run; end it or wait until "
                "it is done, and try again"
            ) from None
        yield descriptor
    finally:
        os.close(descriptor)
