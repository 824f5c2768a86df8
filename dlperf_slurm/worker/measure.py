"""A session that can step -> step times and the window; the only timing loop there is."""

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
    """What one rank saw: seconds per step, and the wall time between the two fences.

    `data_wait_seconds` are those parts of the measured steps in which its host stood still for
    data; none where there is nothing to wait for. `epochs` and `trained_samples`, of all ranks, are
    those of a training to accuracy. `token_seconds` are the parts of each measured generation, one
    behind the other.
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
    """One optimizer update, from as many batches as the case accumulates.

    With `batches`, each is loaded before it is used. `wait_seconds` is, by step, how long the host
    waited for that: for the next batch, and for what of its copy to the device was not left to run
    beside the step. A device whose steps the host does not wait for may be busy meanwhile.
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


class Generation:
    """The tokens of one batch of prompts, each taken when the device has it.

    The first is that of the prefill, which reads the prompt. Times are by the host's clock, from
    the end of the token before, and of the first from the call.
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
        """The times of the tokens from this step on, step after step."""
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
    """Run the warm-up steps, then the measured ones between two fences.

    A fence is a wait for the device, then a barrier over all ranks; the second one is the wait
    alone, so that each rank's window ends with its own last step. Inside the window there is
    nothing but steps and the clock's marks, and in `position` the number of steps that ended.

    In mode "infer" a step is one batch's inference, which waits for its end, and its time is by the
    host's clock in every framework: the latency that a caller sees, from the call to the logits.
    Times between device events would leave out how long the call takes to reach the device, and
    batches that are queued one behind the other have no latency of their own. A generation is such
    a step too, and has the times of its tokens.
    """
    position = position or Position()
    whole_step = Step(session, batches, case)
    step: Callable[[], None] = whole_step
    generation = None
    if case.axes.is_generation:
        step = generation = Generation(cast("GeneratingSession", session), case)
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
    """Host seconds that taking one boundary costs, averaged over many."""
    start = time.perf_counter()
    for index in range(BOUNDARY_SAMPLES + 1):
        clock.mark(index)
    seconds = time.perf_counter() - start
    session.synchronize()
    return seconds / (BOUNDARY_SAMPLES + 1)
