"""Decide the state of an array task from its files, record and queue row. Pure.

The first row of `RULES` that matches decides. Its columns, and their words:

record     valid: everything requested was measured. memory: out of memory. signal: a signal ended
           the ranks, well before the time limit. named: a rank or a node reports why it failed.
           silent: no valid record, and no rank reports why.
start      ended: the script ended by itself. told: it ended with exit code 130, 137 or 143 (SIGINT,
           SIGKILL, SIGTERM).
stopped    the local scheduler, or the loop over the array tasks of a job, ended it (TIMEOUT,
           CANCELLED) or did not start it (SKIPPED, CANCELLED).
queue      squeue's row; sacct's if squeue has none; the journal's last final state if neither has
           one. requeued: pending after a start. revoked: a sibling cluster of the federation has
           the job. unknown: no one knows the job; missing: for longer than the grace period.
           overdue: "completed" for longer than the grace period, and no file says that the script
           ended. local: the process that runs this machine's array tasks lives. over: completed,
           overdue, failed, node failed, stopped by Slurm, unknown, missing.
cancelled  the journal says that `cancel` was asked to end this job.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Optional

from dlperf_slurm.jobs.failed_nodes import NODE_FAIL, UNHEALTHY
from dlperf_slurm.jobs.markers import NO_MARKERS, SKIPPED, MarkerState
from dlperf_slurm.jobs.run_directory import RunTask

CANCELLED = "CANCELLED"
COMPLETED = "COMPLETED"
COMPLETING = "COMPLETING"
FAILED = "FAILED"
LOST = "LOST"
OOM = "OUT_OF_MEMORY"
PENDING = "PENDING"
PREEMPTED = "PREEMPTED"
REVOKED = "REVOKED"
RUNNING = "RUNNING"
STAGED = "STAGED"
UNKNOWN = "UNKNOWN"

# squeue(1), "job state codes": those after which Slurm does not start a job again by itself.
# REVOKED is not among them: the job lives on a sibling cluster.
STOPPED_BY_SLURM = frozenset(("BOOT_FAIL", CANCELLED, "DEADLINE", OOM, PREEMPTED, "TIMEOUT"))
FINAL_STATES = STOPPED_BY_SLURM | {COMPLETED, FAILED, LOST, NODE_FAIL, SKIPPED, UNHEALTHY}
REQUEUED_STATES = frozenset(("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"))
# reasons of a pending job that has run before: "BeginTime", "JobHeldUser", "launch failed ..."
_REQUEUE_REASON = re.compile("BeginTime|held|requeue", re.I)
# 128 + SIGINT, SIGKILL, SIGTERM
_TOLD_TO_END = frozenset((130, 137, 143))
JOB_ENDED_EARLY = "the shared job ended before this array task started"
# states of a shared job that are those of its array tasks too
_SAME_FOR_ALL = REQUEUED_STATES | {"", PENDING, UNKNOWN, COMPLETED, CANCELLED}

# records
VALID, MEMORY, SIGNAL, NAMED, SILENT = RECORDS = ("valid", "memory", "signal", "named", "silent")
STARTS = ("not started", "started", "ended", "told")
QUEUE_ROWS = (
    *("no job", "not asked", "pending", "requeued", "live", "revoked", "local"),
    *("completed", "overdue", "failed", "stopped by Slurm", "node failed", "unknown", "missing"),
)
OVER = frozenset(QUEUE_ROWS[7:])
# meaning of states that `classify_row` does not treat itself; our own states are the journal's
_MEANINGS = {
    "": "not asked",
    FAILED: "failed",
    NODE_FAIL: "node failed",
    REVOKED: "revoked",
    LOST: "missing",
    **dict.fromkeys((*STOPPED_BY_SLURM, SKIPPED, UNHEALTHY), "stopped by Slurm"),
    **dict.fromkeys(REQUEUED_STATES, "requeued"),
}
FROM_FILES = "state of files"
FROM_RECORD = "state of record"
FROM_QUEUE = "state of queue"


class StartFiles(NamedTuple):
    """What the marker files say of the newest start, one execution of the task's job script.

    `exit_code` is that of the script, None until it has ended or if it cannot be read. `stopped` is
    the state set by the local scheduler, or by the loop of a shared job; '' without one.
    """

    has_started: bool = False
    has_ended: bool = False
    exit_code: Optional[int] = None
    stopped: str = ""


class QueueRow(NamedTuple):
    """The scheduler's last answer about an array task.

    `state` is Slurm's state, UNKNOWN if the scheduler does not know the job, "" if not asked.
    `is_overdue`: UNKNOWN, or COMPLETED without an ended script, for longer than the grace period.
    """

    state: str = ""
    reason: str = ""
    nodes: str = ""
    is_overdue: bool = False
    is_local: bool = False

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES

    @property
    def is_waiting_or_running(self) -> bool:
        """Whether this cluster has the job in its queue."""
        return self.state not in FINAL_STATES | {REVOKED}


class StateRule(NamedTuple):
    """One row of the state table; a cell has words of the module docstring, or "any"."""

    record: str
    start: str
    stopped: str
    queue: str
    cancelled: str
    state: str


class Decision(NamedTuple):
    """A state, and how it was decided: by the rule with this number (from 1).

    `source` is FROM_FILES, FROM_RECORD or FROM_QUEUE if that source names the state, else "".
    """

    state: str
    rule: int
    source: str


class TaskState(NamedTuple):
    """State of an array task, the reason for it (`detail`), and the start that it belongs to.

    `start` is the number of an execution of the job script, from 0; -1 if it has not started.
    """

    task: RunTask
    array_job_id: str
    state: str
    detail: str
    start: int = -1

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES


_ENDED = "ended, told"

RULES = (
    StateRule("valid", _ENDED, "any", "any", "any", COMPLETED),
    StateRule("valid", "any", "any", "over, no job", "any", COMPLETED),
    StateRule("valid", "started", "any", "requeued", "any", COMPLETED),
    StateRule("any", "any", "any", "no job", "any", STAGED),
    StateRule("any", "any", "yes", "over", "any", FROM_FILES),
    StateRule("any", _ENDED, "yes", "any", "any", FROM_FILES),
    StateRule("any", _ENDED, "any", "local", "any", FROM_RECORD),
    StateRule("any", _ENDED, "any", "pending, requeued", "any", FROM_QUEUE),
    StateRule("any", _ENDED, "any", "live, not asked, revoked", "any", COMPLETING),
    StateRule("any", _ENDED, "any", "node failed", "any", FROM_QUEUE),
    StateRule("memory", _ENDED, "any", "any", "any", FROM_RECORD),
    StateRule("named, silent", "ended", "any", "any", "any", FROM_RECORD),
    StateRule("any", _ENDED, "any", "stopped by Slurm", "any", FROM_QUEUE),
    StateRule("any", _ENDED, "any", "any", "yes", CANCELLED),
    StateRule("signal, silent", _ENDED, "any", "unknown", "any", COMPLETING),
    StateRule("signal", _ENDED, "any", "failed", "any", PREEMPTED),
    StateRule("any", _ENDED, "any", "any", "any", FROM_RECORD),
    StateRule("any", "started", "any", "local, not asked, pending", "any", RUNNING),
    StateRule("any", "not started", "any", "local, not asked", "any", PENDING),
    StateRule("any", "any", "any", "unknown, missing", "yes", CANCELLED),
    StateRule("any", "any", "any", "unknown", "any", UNKNOWN),
    StateRule("any", "any", "any", "missing, overdue", "any", LOST),
    StateRule("any", "any", "any", "completed", "any", COMPLETING),
    StateRule("any", "any", "any", "revoked", "any", RUNNING),
    StateRule("any", "any", "any", "any", "any", FROM_QUEUE),
)


def decide_state(
    record: str, record_state: str, files: StartFiles, row: Optional[QueueRow], is_cancelled: bool
) -> Decision:
    """Return the state of an array task, by the first row of RULES that matches.

    `record` is one of RECORDS: VALID, or why there is no valid record; `record_state` is the state
    of a failed record: FAILED, OUT_OF_MEMORY or UNHEALTHY. `files` says how far the newest
    execution of the job script has got, `row` what Slurm or the journal says of its job; None if no
    job is known. `is_cancelled`: the user has cancelled this job with `cancel`.
    """
    start, queue = classify_start(files), classify_row(row)
    number = find_rule(record, start, bool(files.stopped), queue, is_cancelled)
    state = RULES[number - 1].state
    words = {
        FROM_FILES: files.stopped,
        FROM_RECORD: record_state,
        FROM_QUEUE: UNKNOWN if row is None else row.state,
    }
    return Decision(words.get(state, state), number, state if state in words else "")


@lru_cache(maxsize=4096)
def find_rule(record: str, start: str, is_stopped: bool, queue: str, is_cancelled: bool) -> int:
    """Return the number (from 1) of the first of RULES that matches.

    `record`, `start`, `queue` are words of RECORDS, STARTS, QUEUE_ROWS; see the module docstring.
    """
    facts = (record, start, "yes" if is_stopped else "no", queue, "yes" if is_cancelled else "no")
    return next(number for number, rule in enumerate(RULES, start=1) if fits(rule, facts))


def fits(rule: StateRule, facts: Sequence[str]) -> bool:
    """Return whether `facts` match a rule's cells: "any", or values, "over" being all of OVER."""
    return all(
        cell == "any" or fact in cell.split(", ") or ("over" in cell.split(", ") and fact in OVER)
        for cell, fact in zip(rule, facts)
    )


def classify_start(files: StartFiles) -> str:
    """Return how far the newest execution of the job script has got: one of STARTS."""
    if files.has_ended:
        return "told" if files.exit_code in _TOLD_TO_END else "ended"
    return "started" if files.has_started else "not started"


def classify_row(row: Optional[QueueRow]) -> str:
    """Return the word of QUEUE_ROWS for the scheduler's answer on a task; "no job" for None."""
    if row is None:
        return "no job"
    if row.state == UNKNOWN:
        return "missing" if row.is_overdue or row.is_local else "unknown"
    if row.is_local:
        return "local"
    if row.state == COMPLETED:
        return "overdue" if row.is_overdue else "completed"
    if row.state == PENDING:
        return "requeued" if _REQUEUE_REASON.search(row.reason) else "pending"
    # live: CONFIGURING, RUNNING, COMPLETING, SUSPENDED, SIGNALING, STAGE_OUT, RESIZING, STOPPED ...
    return _MEANINGS.get(row.state, "live")


def needs_record(files: StartFiles, row: Optional[QueueRow]) -> bool:
    """Return whether the record of an array task could change its state, so that it is read."""
    queue = classify_row(row)
    has_lost_job = files.has_started and queue in ("requeued", "no job")
    return files.has_ended or queue in OVER or has_lost_job


def count_states(states: Sequence[TaskState]) -> dict[str, int]:
    """Count the array tasks by state: name of each state that occurs -> number of tasks."""
    return dict(Counter(state.state for state in states))


def get_row_of_array_task(
    row: QueueRow, has_started: bool, is_over: bool, has_job_begun: bool
) -> QueueRow:
    """Derive an array task's own queue row from `row`, that of the job it shares with others.

    `is_over`: the job went on to its next array task. `has_job_begun`: it has started one at least.

    array task       job                                            row
    over             any                                            FAILED
    started          any                                            the job's
    not started      waits, completed, cancelled, unknown,          the job's
                     not asked
    not started      runs                                           PENDING
    not started      ended early, had begun                         the job's, JOB_ENDED_EARLY
    not started      ended early, had not begun                     the job's
    """
    if is_over:
        return row._replace(state=FAILED, reason="")
    if has_started or row.state in _SAME_FOR_ALL:
        return row
    if row.state not in FINAL_STATES:
        return row._replace(state=PENDING, reason="")
    return row._replace(reason=JOB_ENDED_EARLY) if has_job_begun else row


def find_begun_jobs(
    tasks: Sequence[RunTask], markers: Mapping[str, MarkerState]
) -> set[tuple[str, int]]:
    """Return the shared jobs (group id, index) that have started at least one of their array tasks.

    `markers` has (start number, kind) of each marker, by array task such as "2n8g.17".
    """
    return {
        task.job
        for task in tasks
        if task.shared_job is not None
        and any(kind == "started" for _, kind in markers.get(task.marker, NO_MARKERS))
    }
