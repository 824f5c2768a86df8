"""A decision about a state -> one line that says why, from the array task's own messages."""

import re
from pathlib import Path

from dlperf_slurm.files.reading import open_file
from dlperf_slurm.jobs.failed_nodes import NODE_FAIL
from dlperf_slurm.jobs.markers import (
    ERROR_FILE,
    LOG_WORDS,
    read_hold,
    read_last_error,
    read_marker,
    read_refusal,
)
from dlperf_slurm.jobs.run_directory import SCRIPTS_DIR
from dlperf_slurm.program import COMMAND
from dlperf_slurm.scheduler.shared_allocation import JOB_ENDED_EARLY
from dlperf_slurm.scheduler.state import (
    CANCELLED,
    COMPLETED,
    COMPLETING,
    FAILED,
    FROM_FILES,
    FROM_QUEUE,
    FROM_RECORD,
    LOST,
    PENDING,
    PREEMPTED,
    SILENT,
    STAGED,
    UNKNOWN,
    Decision,
    QueueRow,
)
from dlperf_slurm.scheduler.task_facts import TaskFacts, classify_record

TAIL_BYTES = 16 * 1024
# Slurm's reason where a node could not start the batch script
_LAUNCH_FAILURE = "JobLaunchFailure"

# "srun: error: Node failure on n2", "slurmstepd: error: *** JOB 7 ON n2 CANCELLED AT ... DUE TO
# NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
_NODE_FAILURE = (
    r"Node failure on ([\w.,\[\]-]+)|\*\*\* (?:JOB|STEP) \S+ ON (\S+) CANCELLED AT \S+ DUE TO NODE"
)


def describe_state(facts: TaskFacts, decision: Decision) -> str:
    """Return in one line why an array task has its state, such as "node n2 failed".

    The reason comes from Slurm, the record or the task's error output. It is "" for states that
    need none, such as COMPLETED. `decision` has the state, and the source that named it.
    """
    row = facts.row or QueueRow()
    if decision.state == STAGED:
        return "not submitted yet"
    if decision.source == FROM_FILES:
        return "" if facts.files.has_ended else _describe_hold(facts)
    if decision.state == PREEMPTED:
        return _describe_preemption(facts, decision)
    if decision.source == FROM_QUEUE:
        return _describe_row(facts, row)
    if decision.state == CANCELLED:
        return "cancelled by the command `cancel`"
    if decision.state == LOST:
        return row.reason or _describe_loss(row)
    if decision.source == FROM_RECORD:
        return _describe_failure(facts)
    if decision.state == COMPLETING:
        return _describe_failure(facts) if facts.files.has_ended else ""
    return _get_reason(row) if decision.state in (PENDING, UNKNOWN) else ""


def _describe_preemption(facts: TaskFacts, decision: Decision) -> str:
    """Return why a task counts as PREEMPTED.

    It is the record's own message, which says how far the ranks got; else Slurm's reason; else that
    a signal ended the ranks, although neither the time limit nor `cancel` was the cause.
    """
    words = _describe_failure(facts) if facts.files.has_ended else ""
    if words.startswith(PREEMPTED.lower()):
        return words
    if decision.source == FROM_QUEUE:
        return _get_reason(facts.row or QueueRow()) or "preempted by Slurm"
    return f"{words} before the time limit, and no one cancelled the job: probably preempted"


def _get_reason(row: QueueRow) -> str:
    return "" if row.reason == "None" else row.reason


def _describe_row(facts: TaskFacts, row: QueueRow) -> str:
    """Return why a task has the state in its queue row, from the task's files if they say more."""
    reason = _get_reason(row)
    if row.state == NODE_FAIL:
        return _describe_node_failure(facts, row) or reason
    if facts.files.has_ended:
        return reason or (_describe_failure(facts) if row.is_final else "")
    if row.state != FAILED:
        return reason
    words = read_refusal(facts.run.path, facts.task.marker, facts.start)
    if not words and not facts.files.has_started and reason != JOB_ENDED_EARLY:
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
    if refusal and classify_record(record) == SILENT and not (record and record.status == OK):
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
    words = f"{last_line!r} in" if last_line else "see"
    exit_code = "?" if facts.files.exit_code is None else facts.files.exit_code
    where = facts.folder.path.relative_to(facts.run.path) / ERROR_FILE
    nodes = "" if facts.row is None or facts.row.is_local else facts.row.nodes
    on_nodes = f" on {nodes}" if nodes else ""
    return f"no record, exit code {exit_code}{on_nodes}: {words} {where}"


def _describe_hold(facts: TaskFacts) -> str:
    """Return why a local array task was not started, after earlier launches failed; else ''."""
    hold = read_hold(facts.run.path, facts.task.group_id)
    if facts.files.has_started or not hold:
        return ""
    return (
        "not started, because several array tasks failed to launch in the same way, the last "
        f"with {hold!r}. After fixing the cause: `{COMMAND} retry {facts.run.path}`"
    )


def _describe_loss(row: QueueRow) -> str:
    """Return why an array task counts as LOST, according to the scheduler's last answer."""
    if row.is_local:
        return "the local process that ran this array task no longer exists"
    if row.state == COMPLETED:
        return f"the job script ended without reporting a state: see its log in {SCRIPTS_DIR}/"
    return "neither the queue, accounting nor the run's files know this array task"


def _describe_node_failure(facts: TaskFacts, row: QueueRow) -> str:
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
