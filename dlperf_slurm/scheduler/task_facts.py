"""Files, journal and queue row of one array task -> the facts that decide its state."""

from typing import TYPE_CHECKING, NamedTuple, Optional

from dlperf_slurm.files import FileProblem
from dlperf_slurm.jobs.attempts import AttemptValidity, Start, find_start
from dlperf_slurm.jobs.failed_nodes import UNHEALTHY
from dlperf_slurm.jobs.markers import read_killed, read_marker
from dlperf_slurm.jobs.run_directory import Run, RunTask
from dlperf_slurm.scheduler.state import (
    FAILED,
    MEMORY,
    NAMED,
    OOM,
    SIGNAL,
    SILENT,
    VALID,
    Decision,
    QueueRow,
    StartFiles,
    decide_state,
)

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
    files: StartFiles
    attempt: AttemptValidity
    row: Optional[QueueRow]
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

    def decide(self) -> Decision:
        """Return the state of the array task, by the state table (`scheduler.state.RULES`)."""
        record = self.attempt.record if self.is_attempt_newest else None
        kind = VALID if self.attempt.is_valid else classify_record(record)
        state = get_failure_state(record)
        return decide_state(kind, state, self.files, self.row, self.is_cancelled)


def read_files(run: Run, task: RunTask, start: int, kinds: frozenset[str]) -> StartFiles:
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
            stopped = FAILED
    marker = read_marker(run.path, task.marker, "ended", start) if has_ended else None
    exit_code = None if marker is None else marker.exit_code
    return StartFiles("started" in kinds, has_ended, exit_code, stopped)


def classify_record(record: "Optional[Record]") -> str:
    """Return which of `state.RECORDS` an invalid record is, or a missing one (None)."""
    if record is None:
        return SILENT
    from dlperf_slurm.contract.record import TERMINATED

    if get_failure_state(record) == OOM:
        return MEMORY
    if any(failure.error == TERMINATED for failure in record.failures):
        return SIGNAL
    is_named = record.ranks or any(failure.rank >= 0 for failure in record.failures)
    return NAMED if is_named else SILENT


def get_failure_state(record: "Optional[Record]") -> str:
    """Return a failed record's state: OUT_OF_MEMORY, UNHEALTHY (node checks), else FAILED."""
    if record is None:
        return FAILED
    from dlperf_slurm.contract.nodes import describe_unhealthy
    from dlperf_slurm.contract.record import OK, OUT_OF_MEMORY

    if record.status == OK:
        return FAILED
    if describe_unhealthy(record):
        return UNHEALTHY
    return OOM if record.status == OUT_OF_MEMORY else FAILED
