"""A run -> the state of each of its array tasks: files first, then one scheduler call a poll."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from submitit.core import core

from dlperf_slurm.contract.json_files import ContractError, read_json
from dlperf_slurm.contract.record import OK, OUT_OF_MEMORY, RECORD_FILE, Record
from dlperf_slurm.contract.times import format_now, parse_time
from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.jobs.journal import (
    CANCELLED,
    STATE,
    SUBMITTED,
    TRACKED,
    UNMARKED,
    Event,
    append_event,
    append_events,
    read_journal,
)
from dlperf_slurm.jobs.run_directory import (
    ERROR_FILE,
    MARKERS_DIR,
    Run,
    RunTask,
    read_last_error,
    read_marker,
)
from dlperf_slurm.scheduler.queue import (
    UNKNOWN,
    LocalArrayTaskJob,
    ProcessWatcher,
    QueueWatcher,
    SlurmArrayTaskJob,
    make_watcher,
)

STAGED = "STAGED"
PENDING = "PENDING"
RUNNING = "RUNNING"
COMPLETED = "COMPLETED"
COMPLETING = "COMPLETING"
FAILED = "FAILED"
OOM = "OUT_OF_MEMORY"
LOST = "LOST"

# Slurm's states after which an array task does not come back by itself (squeue(1)); PREEMPTED and
# NODE_FAIL count once the queue shows nothing newer
FINAL_STATES = frozenset(
    (
        "BOOT_FAIL",
        "CANCELLED",
        COMPLETED,
        "DEADLINE",
        FAILED,
        LOST,
        "NODE_FAIL",
        OOM,
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    )
)
TICK_SECONDS = 1.0
POLL_GROWTH = 1.5
_SIGTERM_EXIT_CODES = (130, 137, 143)
# the states of squeue(1) that say that an array task which was ended comes back
_REQUEUED_STATES = frozenset((PENDING, "REQUEUED", "REQUEUE_HOLD"))


@dataclass(frozen=True)
class TaskState:
    """Where an array task stands, and why (scheduler's reason or the failure's first line)."""

    task: RunTask
    array_job_id: str
    state: str
    detail: str

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES


class Tracker:
    """A follower of one run's array tasks; a final state is journaled and not asked for again."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.events = read_journal(run.path)
        self.tasks = run.read_all_tasks()
        self.array_job_ids = {
            event.group_id: event.array_job_id for event in self.events if event.event == SUBMITTED
        }
        self.submitted_at = {
            event.group_id: event.time for event in self.events if event.event == SUBMITTED
        }
        self.cancelled_ids = _list_cancelled_ids(self.events)
        self.final = self._read_final_states()
        self.watcher = make_watcher(run, list(self.array_job_ids))
        self.scheduler_error = ""
        self.unmarked_since = {
            f"{event.group_id}.{event.array_task_id}": event.time
            for event in self.events
            if event.event == UNMARKED
        }
        self.jobs = self._make_jobs()

    def _read_final_states(self) -> dict[str, TaskState]:
        tasks = {task.marker: task for task in self.tasks}
        final: dict[str, TaskState] = {}
        for event in self.events:
            marker = f"{event.group_id}.{event.array_task_id}"
            if event.event == STATE and event.state in FINAL_STATES and marker in tasks:
                final[marker] = TaskState(
                    tasks[marker], event.array_job_id, event.state, event.detail
                )
        return final

    def _make_jobs(self) -> dict[str, core.Job[None]]:
        jobs: dict[str, core.Job[None]] = {}
        for task in self.tasks:
            array_job_id = self.array_job_ids.get(task.group_id)
            if array_job_id is None or task.marker in self.final:
                continue
            job_id = f"{array_job_id}_{task.array_task_id}"
            if isinstance(self.watcher, QueueWatcher):
                jobs[task.marker] = SlurmArrayTaskJob(self.run.path, job_id, self.watcher)
            else:
                jobs[task.marker] = LocalArrayTaskJob(self.run.path, job_id, self.watcher)
        return jobs

    def refresh(self, ask_scheduler: bool) -> list[TaskState]:
        """The states of all array tasks, in the order of the plan.

        A scheduler that does not answer leaves what the files say; `scheduler_error` says so
        until it answers again.
        """
        if self.jobs and (ask_scheduler or isinstance(self.watcher, ProcessWatcher)):
            try:
                self.watcher.update()
                self.scheduler_error = ""
            except SchedulerError as error:
                self.scheduler_error = str(error)
            # The journal is read after the scheduler: who cancels writes there before doing so.
            self.cancelled_ids = _list_cancelled_ids(read_journal(self.run.path))
        present = {path.name for path in (self.run.path / MARKERS_DIR).glob("*")}
        states = [self._find_state(task, present) for task in self.tasks]
        fresh = [s for s in states if s.is_final and s.task.marker not in self.final]
        if fresh:
            append_events(self.run.path, [_make_event(state) for state in fresh])
        for state in fresh:
            self.final[state.task.marker] = state
            self.watcher.mark_finished(self.jobs.pop(state.task.marker).job_id)
        return states

    def _find_state(self, task: RunTask, present: set[str]) -> TaskState:
        if task.marker in self.final:
            return self.final[task.marker]
        if task.marker not in self.jobs:
            return TaskState(task, "", STAGED, "not submitted yet")
        job = self.jobs[task.marker]
        info = self.watcher.get_info(job.job_id, mode="cache")
        asked, reason = info.get("State", PENDING), info.get("Reason", "")
        array_job_id = self.array_job_ids[task.group_id]
        found = TaskState(task, array_job_id, asked, "" if reason == "None" else reason)
        if f"{task.marker}.ended" in present:
            return self._judge_ended(found)
        if f"{task.marker}.killed" in present and asked == UNKNOWN:
            killed = (self.run.path / MARKERS_DIR / f"{task.marker}.killed").read_text()
            return replace(found, state=killed, detail="")
        if asked == UNKNOWN:
            return self._judge_unknown(found, f"{task.marker}.started" in present)
        if asked == COMPLETED:
            return self._judge_unmarked(found)
        if f"{task.marker}.started" in present and asked == PENDING:
            return replace(found, state=RUNNING, detail="")
        return found

    def _judge_ended(self, found: TaskState) -> TaskState:
        """The state of an array task whose script ended: success is a valid record.

        Why a script was told to end, the scheduler says.
        """
        marker = read_marker(self.run.path, found.task, "ended")
        killed = self.run.path / MARKERS_DIR / f"{found.task.marker}.killed"
        if killed.exists():
            return replace(found, state=killed.read_text(), detail="")
        try:
            record = read_json(self.run.path / found.task.attempt_dir / RECORD_FILE, Record)
        except ContractError as error:
            return replace(found, state=FAILED, detail=f"no valid record: {error}")
        except FileNotFoundError:
            code = "?" if marker is None else marker.exit_code
            attempt_dir = found.task.attempt_dir
            last_line = read_last_error(self.run.path / attempt_dir)
            words = f"{last_line!r} in" if last_line else "see"
            detail = f"no record, exit code {code}: {words} {attempt_dir}/{ERROR_FILE}"
            return replace(found, state=FAILED, detail=detail)
        if record.status == OK:
            return replace(found, state=COMPLETED, detail="")
        detail = record.reason.splitlines()[0] if record.reason else ""
        if record.status == OUT_OF_MEMORY:
            return replace(found, state=OOM, detail=detail)
        if marker is not None and marker.exit_code in _SIGTERM_EXIT_CODES and not record.ranks:
            if found.state in FINAL_STATES - {COMPLETED, FAILED}:
                return replace(found, detail=found.detail or detail)
            if found.array_job_id in self.cancelled_ids:
                return replace(found, state="CANCELLED", detail="by `cancel`")
            if isinstance(self.watcher, QueueWatcher) and found.state in _REQUEUED_STATES:
                return found
            if (
                isinstance(self.watcher, QueueWatcher)
                and found.state != FAILED
                and _age_seconds(marker.time) < self.run.manifest.lost_after_seconds
                and all(failure.rank < 0 for failure in record.failures)
            ):
                # the array task may be requeued, or the scheduler has not told yet what it did
                return replace(found, state=COMPLETING)
        return replace(found, state=FAILED, detail=detail)

    def _judge_unmarked(self, found: TaskState) -> TaskState:
        """The state of an array task that Slurm calls COMPLETED and that left no marker.

        The marker may be on its way through the file system. The journal says since when it is
        missed: who looks need not be who looked first.
        """
        if found.task.marker not in self.unmarked_since:
            event = replace(_make_event(found), event=UNMARKED)
            append_event(self.run.path, event)
            self.unmarked_since[found.task.marker] = event.time
        since = self.unmarked_since[found.task.marker]
        if _age_seconds(since) < self.run.manifest.lost_after_seconds:
            return replace(found, state=COMPLETING, detail="")
        detail = "its script ended and wrote no marker: see its log below scripts/"
        return replace(found, state=LOST, detail=detail)

    def _judge_unknown(self, found: TaskState, has_started: bool) -> TaskState:
        if found.array_job_id in self.cancelled_ids:
            return replace(found, state="CANCELLED", detail="by `cancel`")
        since = self.submitted_at[found.task.group_id]
        if has_started:
            marker = read_marker(self.run.path, found.task, "started")
            since = marker.time if marker else since
        if isinstance(self.watcher, ProcessWatcher):
            return replace(found, state=LOST, detail="the process that ran it is gone")
        if _age_seconds(since) < self.run.manifest.lost_after_seconds:
            return found
        detail = "neither queue, accounting nor files know how it ended"
        return replace(found, state=LOST, detail=detail)


def follow_run(tracker: Tracker) -> Iterator[list[TaskState]]:
    """Yield the states until all are final: files every second, the scheduler ever more seldom.

    A scheduler that does not answer is asked again when the next poll is due.
    """
    manifest = tracker.run.manifest
    interval = min(TICK_SECONDS * 5, manifest.poll_seconds)
    next_poll = time.monotonic() + interval
    while True:
        is_due = time.monotonic() >= next_poll
        if is_due:
            interval = min(manifest.slowest_poll_seconds, max(manifest.poll_seconds, interval))
            next_poll = time.monotonic() + interval
            interval *= POLL_GROWTH
        states = tracker.refresh(ask_scheduler=is_due)
        yield states
        if all(state.is_final or state.state == STAGED for state in states):
            calls = json.dumps(tracker.watcher.calls, sort_keys=True)
            append_event(tracker.run.path, Event(TRACKED, format_now(), detail=calls))
            return
        time.sleep(TICK_SECONDS)


def count_states(states: Sequence[TaskState]) -> dict[str, int]:
    """The number of array tasks in each state."""
    return dict(Counter(state.state for state in states))


def _list_cancelled_ids(events: Sequence[Event]) -> set[str]:
    """The ids of the array jobs that `cancel` was asked to end."""
    cancelled = (event.detail.split() for event in events if event.event == CANCELLED)
    return {job_id for job_ids in cancelled for job_id in job_ids}


def _make_event(state: TaskState) -> Event:
    return Event(
        STATE,
        format_now(),
        group_id=state.task.group_id,
        array_job_id=state.array_job_id,
        array_task_id=state.task.array_task_id,
        state=state.state,
        detail=state.detail,
    )


def _age_seconds(text: str) -> float:
    return (datetime.now(timezone.utc) - parse_time(text)).total_seconds()
