"""The number of ended array tasks over time -> the time left of a run on the local scheduler.

Local array tasks run one after the other. On a cluster the time left is unknown, because the number
of concurrent jobs and their queue times are.
"""

import time
from collections.abc import Callable
from typing import Optional

from dlperf_slurm.jobs.manifest import Manifest
from dlperf_slurm.plain_text import write_duration


class TimeLeft:
    """The time left, estimated from the array tasks that ended since this object was made."""

    def __init__(self, manifest: Manifest, clock: Callable[[], float] = time.monotonic) -> None:
        self._is_known = manifest.scheduler == "local"
        self._within_seconds = manifest.within_seconds
        self._clock = clock
        self._began = clock()
        self._done_before: Optional[int] = None
        self._done = 0
        self._text = ""

    def describe(self, done: int, total: int) -> str:
        """Return ", about 4 min left", updated when array tasks end; "" if unknown or all ended.

        `done` of `total` array tasks have ended.
        """
        if self._done_before is None:
            self._done_before = self._done = done
            if self._is_known and self._within_seconds and done < total:
                self._text = f", at most {write_duration(self._within_seconds)} left"
        elif self._is_known and done > self._done:
            self._done = done
            elapsed = self._clock() - self._began
            seconds = elapsed / (done - self._done_before) * (total - done)
            if self._within_seconds:
                seconds = min(seconds, max(0.0, self._within_seconds - elapsed))
            self._text = f", about {write_duration(seconds)} left" if done < total else ""
        return self._text
