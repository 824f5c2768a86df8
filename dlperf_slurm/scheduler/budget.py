"""The seconds that a run may take on this machine -> which array tasks it begins, in what order.

Repeat by repeat, so that what is left out when the time is over are later repeats of all cases, and
the cases that are measured keep about the same number.
"""

import time
from collections.abc import Callable, Sequence
from typing import Optional

from dlperf_slurm.jobs.run_directory import RunTask


class Budget:
    """What is left of `within_seconds`, which count from the first look; 0 is no end.

    Whether there is time for one more array task is judged by the longest one so far.
    """

    def __init__(self, within_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._within_seconds = within_seconds
        self._clock = clock
        self._began: Optional[float] = None
        self._task_began = 0.0
        self._longest_seconds = 0.0

    def order(self, tasks: Sequence[RunTask]) -> list[RunTask]:
        """The order in which array tasks are begun; without an end it is that of the array."""
        return sorted(tasks, key=lambda task: task.repeat) if self._within_seconds else list(tasks)

    def has_time_for(self, task: RunTask) -> bool:
        """Whether an array task is to be begun now.

        The first repeat of each case is, however late it is, and so is what is tried again.
        """
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
