"""Progress of a rank -> how many seconds may pass without a step before it counts as stalled.

The measuring loop only stores the number of steps that ended.
"""

import math
from typing import List, Optional, Tuple

from dlperf_slurm.worker.session import StepClock

START = "start"
WARMUP = "warm-up"
MEASURED = "measured"
END = "end"

# limit before the first step ends: rendezvous, building the model, loading data
START_SECONDS = 1800.0
# limits as multiples of the longest step so far, and of the first step, which compiles
STEPS_ALLOWED = 20
FIRST_STEPS_ALLOWED = 2
LEAST_SECONDS = 60.0
LOOKS = 12
LONGEST_LOOK_SECONDS = 5.0


class Position:
    """The phase of a rank and the number of its ended steps, written by its main thread.

    `phase` is a text such as "warm-up", `phases` the number of phases that have begun.
    """

    def __init__(self) -> None:
        self.phase = START
        self.phases = 0
        self.step = 0
        self.steps = 0
        self._clock: Optional[StepClock] = None
        self._earlier_seconds: List[float] = []

    def enter(self, phase: str, steps: int = 0, clock: Optional[StepClock] = None) -> None:
        """Begin a phase of `steps` steps; `clock` is given only if the steps are measured."""
        self.step = 0
        self._clock = clock
        self.steps = steps
        self.phase = phase
        self.phases += 1

    def keep(self, step_seconds: List[float]) -> None:
        """Store the times of the measured steps of all finished phases, for `read_seconds`."""
        self._earlier_seconds = step_seconds

    def read_seconds(self) -> List[float]:
        """Return the seconds of the measured steps so far; safe to call from another thread."""
        clock, step = self._clock, self.step
        now = [] if clock is None or step == 0 else clock.read_ended_seconds(step)
        return [*self._earlier_seconds, *now]


class ProgressMonitor:
    """Decides whether a rank has stalled, by its longest step so far and its last progress.

    `stall_seconds` is the matrix's limit: None derives it from the steps so far, 0 is no limit.
    """

    def __init__(self, stall_seconds: Optional[float], now: float) -> None:
        self._stall_seconds = stall_seconds
        self._place = (0, 0)
        self._since = now
        self._first_seconds = 0.0
        self._longest_seconds = 0.0

    def record(self, place: Tuple[int, int], now: float) -> None:
        """Record where a rank is at time `now`, in seconds, and so how long its steps take.

        `place` is (number of the phase, ended steps in it).
        """
        if place == self._place:
            return
        phase, step = self._place
        ended = place[1] - (step if place[0] == phase else 0)
        if ended:
            seconds = (now - self._since) / ended
            if not self._first_seconds:
                self._first_seconds = seconds
            else:
                self._longest_seconds = max(self._longest_seconds, seconds)
        self._place, self._since = place, now

    def find_idle_seconds(self, now: float) -> float:
        """Return the seconds since a step last ended or a phase began."""
        return now - self._since

    @property
    def limit_seconds(self) -> float:
        """Seconds that may pass without progress; infinite if there is no limit."""
        if self._stall_seconds is not None:
            return self._stall_seconds or math.inf
        if not self._first_seconds:
            return START_SECONDS
        return max(
            LEAST_SECONDS,
            FIRST_STEPS_ALLOWED * self._first_seconds,
            STEPS_ALLOWED * self._longest_seconds,
        )

    @property
    def poll_seconds(self) -> float:
        """Seconds between two polls; long, since each poll wakes a core that is being measured."""
        return min(LONGEST_LOOK_SECONDS, self.limit_seconds / LOOKS)
