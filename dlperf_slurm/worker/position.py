"""Where a rank stands in its work; the measuring loop stores the step that ended, and no more."""

from typing import TYPE_CHECKING, List, Optional

if TYPE_CHECKING:
    from dlperf_slurm.worker.session import StepClock

START = "start"
WARMUP = "warm-up"
MEASURED = "measured"
END = "end"


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
