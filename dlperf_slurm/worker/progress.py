"""Where a rank stands in its work, and how long no step may end before it counts as stalled.

The measuring loop stores the step that ended, and no more.
"""

import math
from typing import TYPE_CHECKING, List, Optional, Tuple

if TYPE_CHECKING:
    from dlperf_slurm.worker.session import StepClock

START = "start"
WARMUP = "warm-up"
MEASURED = "measured"
END = "end"

# for what comes before the first step: the rendezvous, building, loading
START_SECONDS = 1800.0
# a step may take so many times as long as the longest one so far; the first one compiles
STEPS_ALLOWED = 20
FIRST_STEPS_ALLOWED = 2
LEAST_SECONDS = 60.0
LOOKS = 12
LONGEST_LOOK_SECONDS = 5.0


class Position:
    """The phase of a rank, and how many of its steps have ended; its main thread writes it."""

    def __init__(self) -> None:
        self.phase = START
        self.phases = 0
        self.step = 0
        self.steps = 0
        self._clock: "Optional[StepClock]" = None
        self._earlier_seconds: List[float] = []

    def enter(self, phase: str, steps: int = 0, clock: "Optional[StepClock]" = None) -> None:
        """Begin a phase of so many steps; the clock is that of measured ones."""
        self.step = 0
        self._clock = clock
        self.steps = steps
        self.phase = phase
        self.phases += 1

    def keep(self, step_seconds: List[float]) -> None:
        """Remember the measured steps of the phases that are over."""
        self._earlier_seconds = step_seconds

    def read_seconds(self) -> List[float]:
        """The times of the measured steps that have ended; may be called in another thread."""
        clock, step = self._clock, self.step
        now = [] if clock is None or step == 0 else clock.read_ended_seconds(step)
        return [*self._earlier_seconds, *now]


class Pace:
    """The longest step that was seen, and since when none has ended.

    `stall_seconds` is what the matrix says: None leaves it to the pace, 0 is no limit.
    """

    def __init__(self, stall_seconds: Optional[float], now: float) -> None:
        self._stall_seconds = stall_seconds
        self._place = (0, 0)
        self._since = now
        self._first_seconds = 0.0
        self._longest_seconds = 0.0

    def see(self, place: Tuple[int, int], now: float) -> None:
        """Look at the number of the phase, and of the steps in it that have ended."""
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

    def find_quiet_seconds(self, now: float) -> float:
        """The seconds since a step last ended or a phase began."""
        return now - self._since

    @property
    def limit_seconds(self) -> float:
        """The seconds that may be quiet; infinite where nothing is watched."""
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
    def look_seconds(self) -> float:
        """The time between two looks: seldom, as each wakes a core that is being measured."""
        return min(LONGEST_LOOK_SECONDS, self.limit_seconds / LOOKS)
