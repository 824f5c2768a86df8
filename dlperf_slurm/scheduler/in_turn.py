"""What the scheduler says of a job that several array tasks share -> what that says of one of them.

They run one after the other, so that the job's state is that of the one whose turn it is.
"""

from collections.abc import Mapping, Set

from dlperf_slurm.jobs.markers import NOTHING_SEEN, OVER, Seen
from dlperf_slurm.jobs.run_directory import RunTask
from dlperf_slurm.scheduler.states import (
    CANCELLED,
    COMPLETED,
    FAILED,
    FINAL_STATES,
    PENDING,
    REQUEUED_STATES,
    UNKNOWN,
    TaskState,
)

BEFORE_ITS_TURN = "its job ended before its turn"


def see_in_turn(info: Mapping[str, str], kinds: Set[str], has_job_begun: bool) -> Mapping[str, str]:
    """What the scheduler would say of an array task that shares its job, had it its own.

    `info` is what it says of the job, `kinds` are the array task's markers, and `has_job_begun` is
    whether the job has started any of its array tasks.
    """
    asked = info.get("State", "")
    if OVER in kinds:
        # whatever becomes of the job now, others are the cause
        return {**info, "State": FAILED, "Reason": ""}
    if "started" in kinds or asked in {"", UNKNOWN, COMPLETED, CANCELLED} | REQUEUED_STATES:
        return info
    if asked not in FINAL_STATES:
        return {**info, "State": PENDING, "Reason": ""}
    return {**info, "Reason": BEFORE_ITS_TURN} if has_job_begun else info


def is_before_its_turn(state: TaskState) -> bool:
    """Whether an array task has not started as the job that it shares ended early."""
    return state.is_final and state.detail == BEFORE_ITS_TURN


def find_begun_jobs(tasks: list[RunTask], markers: Mapping[str, Seen]) -> set[tuple[str, int]]:
    """The shared jobs that have started any of their array tasks."""
    return {
        task.job
        for task in tasks
        if task.shared_job is not None
        and any(kind == "started" for _, kind in markers.get(task.marker, NOTHING_SEEN))
    }
