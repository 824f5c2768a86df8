"""What files and scheduler say of one array task -> its state.

Whatever a record says of a failure, the scheduler is asked whether the array task comes back. No
clock of another host decides anything: files and the events of others only say that something is
so, and since when is counted from when this host first saw it.
"""

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Optional

from dlperf_slurm.contract.nodes import describe_unhealthy
from dlperf_slurm.contract.record import OK, OUT_OF_MEMORY, Record
from dlperf_slurm.contract.times import format_now, parse_time
from dlperf_slurm.files import FileProblem
from dlperf_slurm.jobs.attempts import Judgement, Start, find_start
from dlperf_slurm.jobs.failed_nodes import NODE_FAIL, UNHEALTHY
from dlperf_slurm.jobs.journal import SUBMITTED, UNMARKED, Event
from dlperf_slurm.jobs.markers import read_hold, read_killed, read_marker, read_refusal
from dlperf_slurm.jobs.run_directory import Run, RunTask
from dlperf_slurm.program import COMMAND
from dlperf_slurm.scheduler.in_turn import BEFORE_ITS_TURN
from dlperf_slurm.scheduler.reasons import (
    describe_missing_record,
    describe_node_failure,
    describe_script_end,
)
from dlperf_slurm.scheduler.states import (
    CANCELLED,
    COMPLETED,
    COMPLETING,
    FAILED,
    FINAL_STATES,
    LOST,
    OOM,
    PENDING,
    REQUEUED_STATES,
    RUNNING,
    STAGED,
    UNKNOWN,
    TaskState,
)

# the reasons for waiting of what has run already, in squeue's and sacct's spelling: "BeginTime",
# "JobHeldUser", "launch failed requeued held"
_BACK_REASONS = re.compile("BeginTime|held|requeue", re.I)
_SIGTERM_EXIT_CODES = (130, 137, 143)


@dataclass(frozen=True)
class Sight:
    """One array task as files and scheduler show it now.

    `start` is its newest start, `kinds` are the markers of it. `asked` is the state that the
    scheduler told when it was last asked; empty before that.
    """

    run: Run
    task: RunTask
    array_job_id: str
    start: int
    kinds: frozenset[str]
    judgement: Judgement
    asked: str
    reason: str
    nodes: str
    is_cancelled: bool
    is_local: bool

    @property
    def has_started(self) -> bool:
        return "started" in self.kinds

    @property
    def has_ended(self) -> bool:
        return "ended" in self.kinds

    @property
    def runs_again(self) -> bool:
        """Whether the scheduler runs a start that has not ended, beside one that is sound."""
        return self.has_started and not self.has_ended and self.asked == RUNNING

    @property
    def is_ended_by_scheduler(self) -> bool:
        """Whether the scheduler says that it ended the array task, and not its own failure."""
        return self.asked in FINAL_STATES - {COMPLETED, FAILED}

    @property
    def folder(self) -> Start:
        return find_start(self.run.path / self.task.attempt_dir, self.start)

    def make_state(self, state: str, detail: str = "") -> TaskState:
        return TaskState(self.task, self.array_job_id, state, detail, self.start)

    def repeat_scheduler(self) -> TaskState:
        """The state as the scheduler told it, with its reason."""
        reason = "" if self.reason == "None" else self.reason
        if self.asked == NODE_FAIL:
            reason = self.describe_node_failure() or reason
        return self.make_state(self.asked, reason)

    def describe_node_failure(self) -> str:
        marker = read_marker(self.run.path, self.task.marker, "started", self.start)
        nodes = marker.nodes if marker is not None else self.nodes
        return describe_node_failure(self.folder, nodes)


class Patience:
    """How long something has been missing, by this host's own clock.

    `has_open_question` says whether the scheduler is to be asked again soon.
    """

    def __init__(self, lost_after_seconds: float, events: Sequence[Event]) -> None:
        own = socket.gethostname()
        self._lost_after_seconds = lost_after_seconds
        self._since: dict[str, str] = {}
        self._submitted: dict[str, str] = {}
        for event in events:
            marker = f"{event.group_id}.{event.array_task_id}"
            if event.host == own and event.event == SUBMITTED:
                self._submitted[event.group_id] = event.time
            elif event.host == own and event.event == UNMARKED and event.state:
                self._since.setdefault(marker, event.time)
            elif event.event == UNMARKED:
                self._since.pop(marker, None)
        self._fresh: list[Event] = []
        self.has_open_question = False

    def is_over(self, sight: "Sight", since_submission: bool = False) -> bool:
        """Whether it has been missed for too long; the first time that it is, the journal is told.

        Who looks need not be who looked first. What never started may be missed since its
        submission.
        """
        submitted = self._submitted.get(sight.task.group_id)
        if since_submission and submitted is not None:
            return _age_seconds(submitted) >= self._lost_after_seconds
        marker = sight.task.marker
        if marker not in self._since:
            event = self._note(sight, sight.asked)
            self._since[marker] = event.time
        return _age_seconds(self._since[marker]) >= self._lost_after_seconds

    def forget(self, sight: "Sight") -> None:
        """The scheduler knows it again: if it is missed another time, that counts anew."""
        if self._since.pop(sight.task.marker, None) is not None:
            self._note(sight, "")

    def _note(self, sight: "Sight", state: str) -> Event:
        event = Event(
            UNMARKED,
            format_now(),
            group_id=sight.task.group_id,
            array_job_id=sight.array_job_id,
            array_task_id=sight.task.array_task_id,
            state=state,
            start=sight.start,
        )
        self._fresh.append(event)
        return event

    def take_events(self) -> list[Event]:
        """The events that the journal has not been told yet."""
        events, self._fresh = self._fresh, []
        return events


def judge_state(sight: Sight, patience: Patience) -> TaskState:
    """The state of an array task that has no sound record, or that runs again beside one."""
    if not sight.array_job_id:
        return sight.make_state(STAGED, "not submitted yet")
    if sight.asked and sight.asked not in (COMPLETED, UNKNOWN):
        patience.forget(sight)
    if sight.has_ended:
        return _judge_ended(sight, patience)
    if "killed" in sight.kinds and sight.asked in FINAL_STATES | {UNKNOWN}:
        return sight.make_state(_read_killed(sight), _describe_hold(sight))
    if not sight.asked:
        return sight.make_state(RUNNING if sight.has_started else PENDING)
    if sight.asked == UNKNOWN:
        return _judge_unknown(sight, patience)
    if sight.asked == COMPLETED:
        return _judge_unmarked(sight, patience)
    if sight.asked == PENDING and sight.has_started and not _BACK_REASONS.search(sight.reason):
        # the queue is behind
        return sight.make_state(RUNNING)
    state = sight.repeat_scheduler()
    if state.state == FAILED:
        words = read_refusal(sight.run.path, sight.task.marker, sight.start)
        if not words and not sight.has_started and state.detail != BEFORE_ITS_TURN:
            job_id = sight.task.find_job_id(sight.array_job_id)
            words = describe_script_end(sight.run.path, job_id)
        return sight.make_state(FAILED, words or state.detail)
    return state


def _judge_ended(sight: Sight, patience: Patience) -> TaskState:
    """The state of an array task whose script ended without a sound record.

    Why a script was told to end, and whether it comes back, the scheduler says.
    """
    if "killed" in sight.kinds:
        return sight.make_state(_read_killed(sight))
    marker = read_marker(sight.run.path, sight.task.marker, "ended", sight.start)
    record = sight.judgement.record
    state, detail = _describe_failure(sight, "?" if marker is None else str(marker.exit_code))
    if sight.is_local:
        return sight.make_state(state, detail)
    if sight.asked in REQUEUED_STATES:
        return sight.repeat_scheduler()
    if sight.asked not in FINAL_STATES | {UNKNOWN}:
        patience.has_open_question = True
        return sight.make_state(COMPLETING, detail)
    if sight.asked == NODE_FAIL:
        return sight.repeat_scheduler()
    was_told = marker is not None and marker.exit_code in _SIGTERM_EXIT_CODES
    if not was_told or state == OOM or (record is not None and record.ranks):
        return sight.make_state(state, detail)
    if sight.is_ended_by_scheduler:
        told = sight.repeat_scheduler()
        return sight.make_state(told.state, told.detail or detail)
    if sight.is_cancelled:
        return sight.make_state(CANCELLED, "by `cancel`")
    if sight.asked == UNKNOWN and _is_silent(record) and not patience.is_over(sight):
        # accounting has not told yet why it was ended
        return sight.make_state(COMPLETING, detail)
    return sight.make_state(state, detail)


def _describe_failure(sight: Sight, exit_code: str) -> tuple[str, str]:
    """What the record says of a failure, or else the start's last words."""
    judgement = sight.judgement
    if judgement.start is None or judgement.start.number < sight.start:
        judgement = Judgement(sight.folder, None, "")
    record = judgement.record
    refusal = read_refusal(sight.run.path, sight.task.marker, sight.start)
    is_unexplained = record is None or record.status not in (OK, OUT_OF_MEMORY)
    if refusal and is_unexplained and _is_silent(record):
        return FAILED, refusal
    if record is None:
        missing = describe_missing_record(sight.run.path, sight.folder, exit_code)
        return FAILED, f"no valid record: {judgement.problem}" if judgement.problem else missing
    if record.status == OK:
        return FAILED, judgement.problem
    unhealthy = describe_unhealthy(record)
    if unhealthy:
        return UNHEALTHY, unhealthy
    return OOM if record.status == OUT_OF_MEMORY else FAILED, _cut_first_line(record)


def _is_silent(record: Optional[Record]) -> bool:
    """Whether no rank said why it failed."""
    return record is None or all(failure.rank < 0 for failure in record.failures)


def _cut_first_line(record: Record) -> str:
    return record.reason.splitlines()[0] if record.reason else ""


def _judge_unmarked(sight: Sight, patience: Patience) -> TaskState:
    """The state of an array task that Slurm calls COMPLETED and that left no marker.

    The marker may be on its way through the file system.
    """
    if not patience.is_over(sight):
        patience.has_open_question = True
        return sight.make_state(COMPLETING)
    detail = "its script ended and wrote no marker: see its log below scripts/"
    return sight.make_state(LOST, detail)


def _judge_unknown(sight: Sight, patience: Patience) -> TaskState:
    if sight.is_cancelled:
        return sight.make_state(CANCELLED, "by `cancel`")
    if sight.is_local:
        return sight.make_state(LOST, "the process that ran it is gone")
    if not patience.is_over(sight, since_submission=not sight.has_started):
        return sight.make_state(UNKNOWN, "" if sight.reason == "None" else sight.reason)
    return sight.make_state(LOST, "neither queue, accounting nor files know how it ended")


def _read_killed(sight: Sight) -> str:
    """What ended an array task of this machine before its time."""
    try:
        return read_killed(sight.run.path, sight.task.marker)
    except FileProblem:
        return FAILED


def _describe_hold(sight: Sight) -> str:
    """Why an array task of this machine was not started, and what starts it; empty if it was."""
    hold = "" if sight.has_started else read_hold(sight.run.path, sight.task.group_id)
    if not hold:
        return ""
    return (
        f"not started, as the launches before it failed alike, the last with {hold!r}; when that "
        f"is mended: `{COMMAND} retry {sight.run.path}`"
    )


def _age_seconds(text: str) -> float:
    return (datetime.now(timezone.utc) - parse_time(text)).total_seconds()
