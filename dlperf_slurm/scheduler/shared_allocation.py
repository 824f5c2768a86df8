"""The queue row of a job that runs several array tasks in sequence -> a row for each array task."""

from collections.abc import Mapping, Sequence

from dlperf_slurm.jobs.markers import NO_MARKERS, MarkerState
from dlperf_slurm.jobs.run_directory import RunTask
from dlperf_slurm.scheduler.state import (
    CANCELLED,
    COMPLETED,
    FAILED,
    FINAL_STATES,
    PENDING,
    REQUEUED_STATES,
    UNKNOWN,
    QueueRow,
    TaskState,
)

JOB_ENDED_EARLY = "the shared job ended before this array task started"
_SAME_FOR_ALL = REQUEUED_STATES | {"", PENDING, UNKNOWN, COMPLETED, CANCELLED}


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


def is_before_its_turn(state: TaskState) -> bool:
    """Return whether an array task was not started, as its shared job ended before its turn."""
    return state.is_final and state.detail == JOB_ENDED_EARLY


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
