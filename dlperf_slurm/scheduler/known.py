"""The journal's final states, and what was told of the others -> what of it still holds."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Optional

from dlperf_slurm.contract.times import format_now
from dlperf_slurm.jobs.journal import CANCELLED, STATE, Event
from dlperf_slurm.jobs.markers import Seen
from dlperf_slurm.jobs.run_directory import RunTask
from dlperf_slurm.scheduler.states import FINAL_STATES, TaskState


class Known(NamedTuple):
    """A final state, and the markers when it was found; None if the journal says it.

    `files` is the print of the files that it was judged by, and of the markers.
    """

    state: TaskState
    seen: Optional[Seen]
    files: str


class Kept(NamedTuple):
    """A state that is not final, and all that it was told from."""

    state: TaskState
    seen: Seen
    told: tuple[str, str, str]


def read_known(tasks: Mapping[str, RunTask], events: Sequence[Event]) -> dict[str, Known]:
    """The newest final state that the journal has of each of these array tasks."""
    known: dict[str, Known] = {}
    for event in events:
        if event.event == STATE and event.state in FINAL_STATES:
            marker = f"{event.group_id}.{event.array_task_id}"
            task = tasks.get(marker)
            if task is not None:
                job_id, start = event.array_job_id, event.start
                state = TaskState(task, job_id, event.state, event.detail, start)
                known[marker] = Known(state, None, event.files)
    return known


@lru_cache(maxsize=4096)
def print_markers(seen: Seen) -> str:
    """Such as "0e 0s": start and kind of each marker."""
    return " ".join(f"{start}{kind[0]}" for start, kind in sorted(seen))


def list_cancelled_ids(events: Sequence[Event]) -> set[str]:
    """The ids of the array jobs that `cancel` was asked to end."""
    cancelled = (event.detail.split() for event in events if event.event == CANCELLED)
    return {job_id for job_ids in cancelled for job_id in job_ids}


def make_event(state: TaskState, files: str) -> Event:
    """The line of the journal for a final state."""
    return Event(
        STATE,
        format_now(),
        group_id=state.task.group_id,
        array_job_id=state.array_job_id,
        array_task_id=state.task.array_task_id,
        state=state.state,
        detail=state.detail,
        start=state.start,
        files=files,
    )
