"""A session -> step times and the time of all measured steps; the only timing loop of the package.

The window is the measured steps: from a barrier over all ranks to the end of the rank's last step.
"""

import time
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Optional, Tuple, cast

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.record import Epoch
from dlperf_slurm.worker.clock import HostClock
from dlperf_slurm.worker.progress import END, MEASURED, WARMUP, Position

if TYPE_CHECKING:
    from dlperf_slurm.worker.session import GeneratingSession, Session, StepClock

BOUNDARY_SAMPLES = 1000


@dataclass(frozen=True)
class Measurement:
    """Times of one rank: seconds per step, and the wall time of all measured steps (window).

    `boundary_seconds` is the cost of taking one time. `data_wait_seconds` is, per measured step,
    how long the host waited for data; empty without a data loader. `epochs` and `trained_samples`,
    over all ranks, are set in a training to accuracy. `token_seconds` has the times of all tokens
    of the measured generations, in order.
    """

    step_seconds: List[float]
    warmup_step_seconds: List[float]
    window_seconds: float
    clock: str
    boundary_seconds: float
    data_wait_seconds: List[float] = field(default_factory=list)
    epochs: Tuple[Epoch, ...] = ()
    trained_samples: int = 0
    token_seconds: List[float] = field(default_factory=list)


class Step:
    """One optimizer update, with the case's number of gradient accumulations.

    With `batches`, each batch is loaded before it is used. `wait_seconds` is, per step, how long
    the host waited for the next batch and for the synchronous part of its copy to the device. If
    steps run asynchronously, the device may still be computing during that wait.
    """

    def __init__(
        self, session: "Session", batches: Optional[Iterator[Any]], case: Case, steps: int = 0
    ) -> None:
        self.wait_seconds = [0.0] * (steps or case.warmup_steps + case.measured_steps)
        self._session = session
        self._batches = batches
        self._parts = [session.accumulate for _ in range(1, case.axes.gradient_accumulation)]
        self._parts.append(session.step)
        self._taken = 0

    def __call__(self) -> None:
        for part in self._parts:
            if self._batches is not None:
                start = time.perf_counter()
                self._session.load(next(self._batches))
                self.wait_seconds[self._taken] += time.perf_counter() - start
            part()
        self._taken += 1


class TimedGeneration:
    """The generation of all tokens for one batch of prompts, with the time of each token.

    The first token comes from the prefill, which reads the prompt. Times are by the host's clock,
    from the end of the previous token; that of the first token starts with the call.
    """

    def __init__(self, session: "GeneratingSession", case: Case) -> None:
        self._session = session
        self._tokens = case.axes.output_tokens
        steps = case.warmup_steps + case.measured_steps
        self._ends = array("d", bytes(8 * steps * (self._tokens + 1)))
        self._taken = 0

    def __call__(self) -> None:
        ends, place = self._ends, self._taken
        ends[place] = time.perf_counter()
        self._session.prefill()
        ends[place + 1] = time.perf_counter()
        for index in range(place + 2, place + self._tokens + 1):
            self._session.decode()
            ends[index] = time.perf_counter()
        self._taken += self._tokens + 1

    def list_token_seconds(self, step: int) -> List[float]:
        """List the seconds of each token from this step on, in order."""
        marks = self._tokens + 1
        return [
            self._ends[index] - self._ends[index - 1]
            for index in range(step * marks, self._taken)
            if index % marks
        ]


def measure_steps(
    session: "Session",
    barrier: Callable[[], None],
    case: Case,
    batches: Optional[Iterator[Any]] = None,
    on_window_start: Callable[[], None] = lambda: None,
    on_window_end: Callable[[], None] = lambda: None,
    position: Optional[Position] = None,
) -> Measurement:
    """Run the warm-up steps, then the measured steps, whose first to last are the window.

    The window starts after a device synchronization and a barrier over all ranks. It ends with a
    device synchronization alone, so that each rank's window ends with its own last step. Inside the
    window there are only steps, clock marks and the update of `position.step`, by which the
    watchdog follows the progress.

    In mode "infer" a step is the inference of one batch, which waits for the result. Its time is by
    the host's clock in every framework: the latency that a caller sees, from the call to the
    logits. Times between device events would leave out the launch of the call, and queued batches
    have no latency of their own. A generation is such a step too, with the times of its tokens.
    """
    position = position or Position()
    whole_step = Step(session, batches, case)
    step: Callable[[], None] = whole_step
    generation = None
    if case.axes.is_generation:
        step = generation = TimedGeneration(cast("GeneratingSession", session), case)
    elif case.axes.mode == INFER:
        step = session.infer
    elif batches is None and case.axes.gradient_accumulation == 1:
        step = session.step
    make_clock = HostClock if case.axes.mode == INFER else session.make_clock
    warmup_clock = make_clock(case.warmup_steps + 1)
    clock = make_clock(case.measured_steps + 1)
    position.enter(WARMUP, case.warmup_steps)
    session.synchronize()
    warmup_clock.mark(0)
    for index in range(1, case.warmup_steps + 1):
        step()
        warmup_clock.mark(index)
        position.step = index

    session.reset_peak_memory()
    session.synchronize()
    barrier()
    position.enter(MEASURED, case.measured_steps, clock)
    on_window_start()
    start = time.perf_counter()
    clock.mark(0)
    for index in range(1, case.measured_steps + 1):
        step()
        clock.mark(index)
        position.step = index
    session.synchronize()
    window_seconds = time.perf_counter() - start
    on_window_end()

    step_seconds = clock.read_step_seconds()
    position.enter(END)
    position.keep(step_seconds)
    return Measurement(
        step_seconds=step_seconds,
        warmup_step_seconds=warmup_clock.read_step_seconds(),
        window_seconds=window_seconds,
        clock=clock.name,
        boundary_seconds=measure_boundary(session, make_clock(BOUNDARY_SAMPLES + 1)),
        data_wait_seconds=whole_step.wait_seconds[case.warmup_steps :] if batches else [],
        token_seconds=generation.list_token_seconds(case.warmup_steps) if generation else [],
    )


def measure_boundary(session: "Session", clock: "StepClock") -> float:
    """Measure the mean time that the host spends in one call of `clock.mark`, in seconds."""
    start = time.perf_counter()
    for index in range(BOUNDARY_SAMPLES + 1):
        clock.mark(index)
    seconds = time.perf_counter() - start
    session.synchronize()
    return seconds / (BOUNDARY_SAMPLES + 1)
