"""A session -> step times and the time of all measured steps; the only timing loop of the package.

The window is the measured steps: from a barrier over all ranks to the end of the rank's last step.
"""

import math
import sys
import time
from array import array
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple, Union, cast

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.contract.case import Case, find_most_steps
from dlperf_slurm.contract.record import Epoch
from dlperf_slurm.worker.clock import HostClock
from dlperf_slurm.worker.progress import END, MEASURED, WARMUP, Position
from dlperf_slurm.worker.session import GeneratingSession, Session, StepClock

BOUNDARY_SAMPLES = 1000
# steps of a phase that the case's least seconds may ask for: each step has an event of its device
# and a time of each rank
MOST_STEPS = 20_000
# by how much the measured steps may be faster than those of the warm-up
STEP_TIME_MARGIN = 1.05


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
        self, session: Session, batches: Optional[Iterator[Any]], case: Case, steps: int
    ) -> None:
        self.wait_seconds = [0.0] * steps
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

    def __init__(self, session: GeneratingSession, case: Case, steps: int) -> None:
        self._session = session
        self._tokens = case.axes.output_tokens
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

    def list_token_seconds(self) -> List[float]:
        """List the seconds of each token of all generations so far, in order."""
        return [
            self._ends[index] - self._ends[index - 1]
            for index in range(self._taken)
            if index % (self._tokens + 1)
        ]


def measure_steps(
    session: Session,
    barrier: Callable[[], None],
    case: Case,
    batches: Optional[Iterator[Any]] = None,
    on_window_start: Callable[[], None] = lambda: None,
    on_window_end: Callable[[], None] = lambda: None,
    position: Optional[Position] = None,
    agree: Callable[[int], int] = int,
) -> Measurement:
    """Run the warm-up steps, then the measured steps, whose first to last are the window.

    If the case asks for least seconds, more steps follow until both phases last as long; `agree`
    returns the largest of all ranks' numbers, and is called before the window only. Each batch of a
    training step is loaded from `batches`; if that is None, the session's own batch is used.

    The window starts after a device synchronization and a barrier over all ranks. It ends with a
    device synchronization alone, so that each rank's window ends with its own last step. Inside the
    window there are only steps, clock marks and the update of `position.step`, by which the
    watchdog follows the progress.

    In mode "infer" a step is the inference of one batch, which waits for the result. Its time is by
    the host's clock in every framework: the latency that a caller sees, from the call to the
    logits. Times between device events would leave out the launch of the call, and queued batches
    have no latency of their own. A generation is such a step too, with the times of its tokens.
    """
    place = position or Position()
    make_clock = HostClock if case.axes.mode == INFER else session.make_clock

    def make_step(steps: int) -> Union[Step, TimedGeneration, Callable[[], None]]:
        if case.axes.is_generation:
            return TimedGeneration(cast("GeneratingSession", session), case, steps)
        if case.axes.mode == INFER:
            return session.infer
        if batches is None and case.axes.gradient_accumulation == 1:
            return session.step
        return Step(session, batches, case, steps)

    def warm_up(steps: int) -> List[float]:
        step, clock = make_step(steps), make_clock(steps + 1)
        place.enter(WARMUP, steps)
        session.synchronize()
        take_steps(step, clock, steps, place)
        session.synchronize()
        return clock.read_step_seconds()

    has_least = case.min_warmup_seconds > 0 or case.min_measured_seconds > 0
    # the first step compiles, so that its time is not that of a step
    warmup_seconds = warm_up(max(case.warmup_steps, 2) if has_least else case.warmup_steps)
    steps = case.measured_steps
    if has_least:
        most = min(MOST_STEPS, find_most_steps(case.axes))
        while True:
            missing = case.min_warmup_seconds - sum(warmup_seconds[1:])
            more = min(count_steps(missing, warmup_seconds), most - len(warmup_seconds))
            more = agree(more)
            if more < 1:
                break
            warmup_seconds += warm_up(more)
        wanted = count_steps(STEP_TIME_MARGIN * case.min_measured_seconds, warmup_seconds)
        steps = agree(max(steps, min(wanted, most)))
    step, clock = make_step(steps), make_clock(steps + 1)

    try:
        session.reset_peak_memory()
    # peak memory is only an extra: its error must not end the measurement
    except Exception as error:
        text = f"cannot reset the framework's peak-memory statistics: {error!r}"
        print(text, file=sys.stderr, flush=True)
    session.synchronize()
    barrier()
    place.enter(MEASURED, steps, clock)
    on_window_start()
    start = time.perf_counter()
    take_steps(step, clock, steps, place)
    session.synchronize()
    window_seconds = time.perf_counter() - start
    on_window_end()

    step_seconds = clock.read_step_seconds()
    place.enter(END)
    place.keep(step_seconds)
    return Measurement(
        step_seconds=step_seconds,
        warmup_step_seconds=warmup_seconds,
        window_seconds=window_seconds,
        clock=clock.name,
        boundary_seconds=measure_boundary(session, make_clock(BOUNDARY_SAMPLES + 1)),
        data_wait_seconds=step.wait_seconds if batches and isinstance(step, Step) else [],
        token_seconds=step.list_token_seconds() if isinstance(step, TimedGeneration) else [],
    )


def take_steps(step: Callable[[], None], clock: StepClock, steps: int, position: Position) -> None:
    """Run `steps` steps, with a mark of the clock before the first and after each."""
    clock.mark(0)
    for index in range(1, steps + 1):
        step()
        clock.mark(index)
        position.step = index


def count_steps(seconds: float, step_seconds: Sequence[float]) -> int:
    """Return how many steps last `seconds`, by the first quartile of the steps' later half."""
    later = sorted(step_seconds[len(step_seconds) // 2 :])
    return math.ceil(max(seconds, 0.0) / max(later[len(later) // 4], 1e-9))


def measure_boundary(session: Session, clock: StepClock) -> float:
    """Measure the mean time that the host spends in one call of `clock.mark`, in seconds.

    The clock must have BOUNDARY_SAMPLES + 1 boundaries; `session` is synchronized afterwards.
    """
    start = time.perf_counter()
    for index in range(BOUNDARY_SAMPLES + 1):
        clock.mark(index)
    seconds = time.perf_counter() - start
    session.synchronize()
    return seconds / (BOUNDARY_SAMPLES + 1)
