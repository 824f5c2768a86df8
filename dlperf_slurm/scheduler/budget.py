"""Choose which array tasks of this machine begin within the seconds that a run may take.

Repeat by repeat, so that all cases are measured about as often when the time is over.
"""

import time
from collections.abc import Callable, Sequence
from typing import Optional

from dlperf_slurm.jobs.run_directory import RunTask


class Budget:
    """What is left of `within_seconds`, from the first question on; 0 is no end."""

    def __init__(self, within_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._within_seconds = within_seconds
        self._clock = clock
        self._began: Optional[float] = None
        self._task_began = 0.0
        self._longest_seconds = 0.0

    def order(self, tasks: Sequence[RunTask]) -> list[RunTask]:
        """Return the order in which array tasks begin: that of the array where there is no end."""
        return sorted(tasks, key=lambda task: task.repeat) if self._within_seconds else list(tasks)

    def has_time_for(self, task: RunTask) -> bool:
        """Return whether an array task may begin: first repeats and further attempts always may."""
        now = self._clock()
        if self._began is None:
            self._began = now
        self._task_began = now
        if not self._within_seconds or task.repeat == 1 or task.attempt > 1:
            return True
        return now + self._longest_seconds <= self._began + self._within_seconds

    def note_end(self) -> None:
        """Note that the array task that was begun has ended."""
        self._longest_seconds = max(self._longest_seconds, self._clock() - self._task_began)
