"""How many array tasks have ended, and when -> how long the others of a run on this machine take.

They run one after the other there. On a cluster nobody knows how many run at a time, or when.
"""

import time
from collections.abc import Callable
from typing import Optional

from dlperf_slurm.jobs.durations import write_duration
from dlperf_slurm.jobs.manifest import Manifest


class TimeLeft:
    """What is left, by the pace of what ended since this one was made; "" as long as none has."""

    def __init__(self, manifest: Manifest, clock: Callable[[], float] = time.monotonic) -> None:
        self._is_known = manifest.scheduler == "local"
        self._within_seconds = manifest.within_seconds
        self._clock = clock
        self._began = clock()
        self._done_before: Optional[int] = None
        self._done = 0
        self._text = ""

    def describe(self, done: int, total: int) -> str:
        """Such as ", about 4 min to go", which changes only as array tasks end."""
        if self._done_before is None:
            self._done_before = self._done = done
            if self._is_known and self._within_seconds and done < total:
                self._text = f", at most {write_duration(self._within_seconds)} to go"
        elif self._is_known and done > self._done:
            self._done = done
            elapsed = self._clock() - self._began
            seconds = elapsed / (done - self._done_before) * (total - done)
            if self._within_seconds:
                seconds = min(seconds, max(0.0, self._within_seconds - elapsed))
            self._text = f", about {write_duration(seconds)} to go" if done < total else ""
        return self._text
