"""Choose which array tasks to start on this machine within the time budget of a run.

Tasks are ordered by repeat, so that all cases have about as many repeats when the time is up.
"""

import time
from collections.abc import Callable, Sequence
from typing import Optional

from dlperf_slurm.jobs.run_directory import RunTask


class TimeBudget:
    """Time budget of a local run (`--within`), from the first `has_time_for` on; 0: no limit."""

    def __init__(self, within_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._within_seconds = within_seconds
        self._clock = clock
        self._began: Optional[float] = None
        self._task_began = 0.0
        self._longest_seconds = 0.0

    def order(self, tasks: Sequence[RunTask]) -> list[RunTask]:
        """Sort array tasks by repeat if there is a time budget; else keep their order."""
        return sorted(tasks, key=lambda task: task.repeat) if self._within_seconds else list(tasks)

    def has_time_for(self, task: RunTask) -> bool:
        """Return whether the time left suffices for a task as long as the longest so far.

        It is always True for the first repeat of a case and for retries (`task.attempt` above 1).
        """
        now = self._clock()
        if self._began is None:
            self._began = now
        self._task_began = now
        if not self._within_seconds or task.repeat == 1 or task.attempt > 1:
            return True
        return now + self._longest_seconds <= self._began + self._within_seconds

    def note_end(self) -> None:
        """Record the end of the array task of the last `has_time_for` call, for its duration."""
        self._longest_seconds = max(self._longest_seconds, self._clock() - self._task_began)
