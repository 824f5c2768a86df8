"""The states of array tasks, in Slurm's words (squeue(1)) and four of our own."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from dlperf_slurm.jobs import markers
from dlperf_slurm.jobs.failed_nodes import NODE_FAIL, UNHEALTHY
from dlperf_slurm.jobs.run_directory import RunTask

STAGED = "STAGED"
PENDING = "PENDING"
RUNNING = "RUNNING"
COMPLETED = "COMPLETED"
COMPLETING = "COMPLETING"
CANCELLED = "CANCELLED"
FAILED = "FAILED"
OOM = "OUT_OF_MEMORY"
LOST = "LOST"
# what neither queue nor accounting know: of our own too
UNKNOWN = "UNKNOWN"
# for what `submit --within` had no time for
SKIPPED = markers.SKIPPED

# Slurm's states after which an array task does not come back by itself; PREEMPTED and NODE_FAIL
# count once the queue shows nothing newer
FINAL_STATES = frozenset(
    (
        "BOOT_FAIL",
        CANCELLED,
        COMPLETED,
        "DEADLINE",
        FAILED,
        LOST,
        NODE_FAIL,
        OOM,
        "PREEMPTED",
        "REVOKED",
        SKIPPED,
        "TIMEOUT",
        UNHEALTHY,
    )
)
# the states that say that an array task which was ended comes back
REQUEUED_STATES = frozenset((PENDING, "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"))


class TaskState(NamedTuple):
    """Where an array task stands, and why (scheduler's reason or the failure's first line).

    `start` is the number of the start that it is about.
    """

    task: RunTask
    array_job_id: str
    state: str
    detail: str
    start: int = -1

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES


def count_states(states: Sequence[TaskState]) -> dict[str, int]:
    """The number of array tasks in each state."""
    return dict(Counter(state.state for state in states))
