"""Follow the states of a run's array tasks from poll to poll, until all are final."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Optional

from dlperf_slurm.errors import InputError, JournalError
from dlperf_slurm.jobs.journal import TRACKED, Event, append_event
from dlperf_slurm.scheduler.state import STAGED, TaskState
from dlperf_slurm.scheduler.submitter import Submitter
from dlperf_slurm.scheduler.track import Tracker

TICK_SECONDS = 1.0
POLL_GROWTH = 1.5
# how long a run directory may be missing, as on a network file system that is not mounted
AWAY_SECONDS = 600.0
# how long it may be missing from its folder while that is mounted, so that it was deleted or moved
DELETED_SECONDS = 30.0


def follow_run(
    tracker: Tracker, submitter: Optional[Submitter] = None
) -> Iterator[list[TaskState]]:
    """Yield the states of all array tasks every second, until all are final or not submitted.

    The run's files are read every second; the scheduler is polled at a growing interval, and sooner
    if its answer decides a state or if array tasks ended while groups wait for a free queue slot.
    `submitter` submits these groups. At the end, the numbers of scheduler calls are journaled.
    Raises InputError if the run directory was deleted, OSError if it is missing for AWAY_SECONDS,
    SchedulerError as `Submitter.submit_waiting` does.
    """
    manifest = tracker.run.manifest
    folder = _identify(tracker.run.path.parent)
    interval = min(TICK_SECONDS * 5, manifest.poll_seconds)
    next_poll = time.monotonic() + interval
    last_poll = float("-inf")
    away_since = time.monotonic()
    fed_at, ended_before = away_since, 0
    while True:
        now = time.monotonic()
        is_urgent = tracker.has_open_question and now >= last_poll + manifest.poll_seconds
        is_due = now >= next_poll or is_urgent
        if is_due:
            last_poll = now
            interval = min(manifest.slowest_poll_seconds, max(manifest.poll_seconds, interval))
            next_poll = now + interval
            interval *= POLL_GROWTH
        try:
            states = tracker.refresh(ask_scheduler=is_due)
            away_since = now
        except OSError:
            # the file system may come back
            if now > away_since + AWAY_SECONDS:
                raise
            if now > away_since + DELETED_SECONDS:
                _check_deleted(tracker.run.path, folder)
            time.sleep(TICK_SECONDS)
            continue
        yield states
        if submitter is not None and submitter.is_waiting:
            ended = sum(state.is_final for state in states)
            makes_room = ended > ended_before and now >= fed_at + manifest.poll_seconds
            if is_due or makes_room:
                fed_at, ended_before = now, ended
                submitter.submit_waiting()
                tracker.read_submissions()
        elif (
            all(state.is_final or state.state == STAGED for state in states)
            # another process may have submitted what is staged
            and not tracker.read_submissions()
        ):
            _journal_calls(tracker)
            return
        time.sleep(TICK_SECONDS)


def _identify(folder: Path) -> Optional[tuple[int, int]]:
    """Return the device and inode of a folder; None if it cannot be reached."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _check_deleted(run_dir: Path, folder: Optional[tuple[int, int]]) -> None:
    """Raise InputError if a missing run directory was deleted, not unmounted.

    It was deleted if the folder that contained it, identified by `folder`, is still the same.
    """
    with suppress(OSError):
        if folder is not None and _identify(run_dir.parent) == folder and not run_dir.exists():
            raise InputError(
                f"{run_dir}: was deleted or moved while this command followed the run. Its jobs "
                "cannot write results: list the jobs with `squeue --me`, and end them with scancel"
            )


def _journal_calls(tracker: Tracker) -> None:
    calls = json.dumps(tracker.watcher.calls, sort_keys=True)
    try:
        append_event(tracker.run.path, Event(TRACKED, detail=calls))
    except JournalError as error:
        tracker.journal_error = str(error)
