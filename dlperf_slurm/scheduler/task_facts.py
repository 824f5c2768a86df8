"""Files, journal and queue row of one array task -> the facts that decide its state."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Optional

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.reading import open_file
from dlperf_slurm.jobs.attempts import AttemptValidity, Start, find_start
from dlperf_slurm.jobs.failed_nodes import NODE_FAIL, UNHEALTHY
from dlperf_slurm.jobs.markers import (
    ERROR_FILE,
    LOG_WORDS,
    read_hold,
    read_killed,
    read_last_error,
    read_marker,
    read_refusal,
)
from dlperf_slurm.jobs.run_directory import SCRIPTS_DIR, Run, RunTask
from dlperf_slurm.program import COMMAND
from dlperf_slurm.scheduler import state as states

if TYPE_CHECKING:
    from dlperf_slurm.contract.record import Record


class TaskFacts(NamedTuple):
    """Facts about one array task, which decide its state.

    A start is one execution of the task's job script: the first, or one after a requeue. `start` is
    the number of the newest one, `files` are its marker files. `attempt` is the validity of the
    newest start with a valid record, or of the newest start if none has one. `row` is None without
    a job.
    """

    run: Run
    task: RunTask
    array_job_id: str
    start: int
    files: states.StartFiles
    attempt: AttemptValidity
    row: Optional[states.QueueRow]
    is_cancelled: bool

    @property
    def folder(self) -> Start:
        return find_start(self.run.path / self.task.attempt_dir, self.start)

    @property
    def job_id(self) -> str:
        return self.task.get_job_id(self.array_job_id)

    @property
    def failed(self) -> AttemptValidity:
        """The validity of the newest execution of the job script, to explain a failure.

        It has neither record nor problem if `attempt` is of an earlier execution, or of none.
        """
        if self.is_attempt_newest:
            return self.attempt
        return AttemptValidity(self.folder, None, "")

    @property
    def is_attempt_newest(self) -> bool:
        """Whether `attempt` is of the newest execution of the job script."""
        return self.attempt.start is not None and self.attempt.start.number >= self.start

    def decide(self) -> states.Decision:
        """Return the state of the array task, by the state table (`scheduler.state.RULES`)."""
        record = self.attempt.record if self.is_attempt_newest else None
        kind = states.VALID if self.attempt.is_valid else classify_record(record)
        state = get_failure_state(record)
        return states.decide_state(kind, state, self.files, self.row, self.is_cancelled)


def read_files(run: Run, task: RunTask, start: int, kinds: frozenset[str]) -> states.StartFiles:
    """Read the marker files of one execution (`start`) of the task's job script.

    `kinds` has the kinds of markers that exist, such as "ended".
    """
    stopped, has_ended = "", "ended" in kinds
    if "killed" in kinds:
        try:
            stopped = read_killed(run.path, task.marker)
        except FileNotFoundError:
            # removed since the markers were listed
            stopped = ""
        except FileProblem:
            stopped = states.FAILED
    marker = read_marker(run.path, task.marker, "ended", start) if has_ended else None
    exit_code = None if marker is None else marker.exit_code
    return states.StartFiles("started" in kinds, has_ended, exit_code, stopped)


def classify_record(record: "Optional[Record]") -> str:
    """Return which of `state.RECORDS` an invalid record is, or a missing one (None)."""
    if record is None:
        return states.SILENT
    from dlperf_slurm.contract.record import TERMINATED

    if get_failure_state(record) == states.OOM:
        return states.MEMORY
    if any(failure.error == TERMINATED for failure in record.failures):
        return states.SIGNAL
    is_named = record.ranks or any(failure.rank >= 0 for failure in record.failures)
    return states.NAMED if is_named else states.SILENT


def get_failure_state(record: "Optional[Record]") -> str:
    """Return a failed record's state: OUT_OF_MEMORY, UNHEALTHY (node checks), else FAILED."""
    if record is None:
        return states.FAILED
    from dlperf_slurm.contract.nodes import describe_unhealthy
    from dlperf_slurm.contract.record import OK, OUT_OF_MEMORY

    if record.status == OK:
        return states.FAILED
    if describe_unhealthy(record):
        return UNHEALTHY
    return states.OOM if record.status == OUT_OF_MEMORY else states.FAILED


TAIL_BYTES = 16 * 1024
# Slurm's reason where a node could not start the batch script
_LAUNCH_FAILURE = "JobLaunchFailure"

# "srun: error: Node failure on n2", "slurmstepd: error: *** JOB 7 ON n2 CANCELLED AT ... DUE TO
# NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
_NODE_FAILURE = (
    r"Node failure on ([\w.,\[\]-]+)|\*\*\* (?:JOB|STEP) \S+ ON (\S+) CANCELLED AT \S+ DUE TO NODE"
)


def describe_state(facts: TaskFacts, decision: states.Decision) -> str:
    """Return in one line why an array task has its state, such as "node n2 failed".

    The reason comes from Slurm, the record or the task's error output. It is "" for states that
    need none, such as COMPLETED. `decision` has the state, and the source that named it.
    """
    row = facts.row or states.QueueRow()
    if decision.state == states.STAGED:
        return "not submitted yet"
    if decision.source == states.FROM_FILES:
        return "" if facts.files.has_ended else _describe_hold(facts)
    if decision.state == states.PREEMPTED:
        return _describe_preemption(facts, decision)
    if decision.source == states.FROM_QUEUE:
        return _describe_row(facts, row)
    if decision.state == states.CANCELLED:
        return "cancelled by the command `cancel`"
    if decision.state == states.LOST:
        return row.reason or _describe_loss(row)
    if decision.source == states.FROM_RECORD:
        return _describe_failure(facts)
    if decision.state == states.COMPLETING:
        return _describe_failure(facts) if facts.files.has_ended else ""
    return _get_reason(row) if decision.state in (states.PENDING, states.UNKNOWN) else ""


def _describe_preemption(facts: TaskFacts, decision: states.Decision) -> str:
    """Return why a task counts as PREEMPTED.

    It is the record's own message, which says how far the ranks got; else Slurm's reason; else that
    a signal ended the ranks, although neither the time limit nor `cancel` was the cause.
    """
    words = _describe_failure(facts) if facts.files.has_ended else ""
    if words.startswith(states.PREEMPTED.lower()):
        return words
    if decision.source == states.FROM_QUEUE:
        return _get_reason(facts.row or states.QueueRow()) or "preempted by Slurm"
    return (
        f"{words}; probably preempted, because the time limit was not reached and no one cancelled "
        "the job"
    )


def _get_reason(row: states.QueueRow) -> str:
    return "" if row.reason == "None" else row.reason


def _describe_row(facts: TaskFacts, row: states.QueueRow) -> str:
    """Return why a task has the state in its queue row, from the task's files if they say more."""
    reason = _get_reason(row)
    if row.state == NODE_FAIL:
        return _describe_node_failure(facts, row) or reason
    if facts.files.has_ended:
        return reason or (_describe_failure(facts) if row.is_final else "")
    if row.state != states.FAILED:
        return reason
    words = read_refusal(facts.run.path, facts.task.marker, facts.start)
    if not words and not facts.files.has_started and reason != states.JOB_ENDED_EARLY:
        words = _describe_script_end(facts.run.path, facts.job_id)
    if words or reason != _LAUNCH_FAILURE:
        return words or reason
    return f"{reason} on {row.nodes}" if row.nodes else reason


def _describe_failure(facts: TaskFacts) -> str:
    """Return why the job script failed last: the reason in the record, else its last error line."""
    from dlperf_slurm.contract.nodes import describe_unhealthy
    from dlperf_slurm.contract.record import OK

    failed, run_dir = facts.failed, facts.run.path
    record = failed.record
    refusal = read_refusal(run_dir, facts.task.marker, facts.start)
    if (
        refusal
        and classify_record(record) == states.SILENT
        and not (record and record.status == OK)
    ):
        return refusal
    if record is None:
        no_record = f"no valid result: {failed.problem}"
        return no_record if failed.problem else _describe_missing_record(facts)
    if record.status == OK:
        return failed.problem
    return describe_unhealthy(record) or record.reason.partition("\n")[0]


def _describe_missing_record(facts: TaskFacts) -> str:
    """Return exit code, nodes and last error line of a job script that left no record."""
    last_line = read_last_error(facts.folder.path, facts.run.path)
    exit_code = "?" if facts.files.exit_code is None else facts.files.exit_code
    nodes = "" if facts.row is None or facts.row.is_local else facts.row.nodes
    on_nodes = f" on {nodes}" if nodes else ""
    words = repr(last_line) if last_line else "no line of error output was found"
    return f"no record, exit code {exit_code}{on_nodes}: {words}"


def _describe_hold(facts: TaskFacts) -> str:
    """Return why a local array task was not started, after earlier launches failed; else ''."""
    hold = read_hold(facts.run.path, facts.task.group_id)
    if facts.files.has_started or not hold:
        return ""
    return (
        "not started, because several array tasks failed to launch in the same way, the last "
        f"with {hold!r}. After fixing the cause: `{COMMAND} retry {facts.run.path}`"
    )


def _describe_loss(row: states.QueueRow) -> str:
    """Return why an array task counts as LOST, according to the scheduler's last answer."""
    if row.is_local:
        return "the local process that ran this array task no longer exists"
    if row.state == states.COMPLETED:
        return f"the job script ended without reporting a state: see its log in {SCRIPTS_DIR}/"
    return "neither the queue, accounting nor the run's files know this array task"


def _describe_node_failure(facts: TaskFacts, row: states.QueueRow) -> str:
    """Return which node failed, by Slurm's message in the error output: "node n2 failed".

    Without the message, name the nodes of the job, one of which failed; '' if they are unknown.
    """
    found = re.search(_NODE_FAILURE, _read_tail(facts.folder.path / ERROR_FILE))
    if found is not None:
        return f"node {found[1] or found[2]} failed"
    marker = read_marker(facts.run.path, facts.task.marker, "started", facts.start)
    nodes = marker.nodes if marker is not None else row.nodes
    if not nodes:
        return ""
    is_several = re.search(r"[,\[]", nodes) is not None
    return f"one of the nodes {nodes} failed" if is_several else f"node {nodes} failed"


def _describe_script_end(run_dir: Path, job_id: str) -> str:
    """Return the last log line of a job script, with the log's name, or "" without a log.

    The caller must know that the script ended before it marked its start.
    """
    log = run_dir / SCRIPTS_DIR / f"{job_id}.log"
    lines = [line.strip() for line in _read_tail(log).splitlines() if line.strip()]
    # lines that only name the logs are no reason
    lines = [line for line in lines if not line.startswith(LOG_WORDS)]
    return f"{lines[-1]!r} in {log.relative_to(run_dir)}" if lines else ""


def _read_tail(path: Path) -> str:
    try:
        with open_file(path, root=path.parent) as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
