"""Choose which array tasks to start on this machine within the time budget of a run.

Tasks are ordered by repeat, so that all cases have about as many repeats when the time is up.
"""

import time
from collections.abc import Callable, Sequence
from typing import Optional

from dlperf_slurm.jobs.run_directory import RunTask


class TimeBudget:
    """The time budget of a local run (`submit --within`), which begins at the first array task.

    0 is no limit.
    """

    def __init__(self, within_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._within_seconds = within_seconds
        self._clock = clock
        self._began: Optional[float] = None
        self._task_began = 0.0
        self._longest_seconds = 0.0

    def order(self, tasks: Sequence[RunTask]) -> list[RunTask]:
        """Return array tasks sorted by repeat if there is a time budget, else unchanged."""
        return sorted(tasks, key=lambda task: task.repeat) if self._within_seconds else list(tasks)

    def has_time_for(self, task: RunTask) -> bool:
        """Return whether the time left suffices for a task as long as the longest task so far.

        True for the first repeat of a case, for retries (`task.attempt` above 1) and without a
        budget. The call also begins the timing of the task.
        """
        now = self._clock()
        if self._began is None:
            self._began = now
        self._task_began = now
        if not self._within_seconds or task.repeat == 1 or task.attempt > 1:
            return True
        return now + self._longest_seconds <= self._began + self._within_seconds

    def note_end(self) -> None:
        """Record the end of the task of the last `has_time_for` call, to know its duration."""
        self._longest_seconds = max(self._longest_seconds, self._clock() - self._task_began)
