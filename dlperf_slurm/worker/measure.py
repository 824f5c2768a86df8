"""A session that can step -> step times and the window; the only timing loop there is."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, List

from dlperf_slurm.contract import VAL, Case
from dlperf_slurm.worker.clock import HostClock

if TYPE_CHECKING:
    from dlperf_slurm.worker.frameworks import Session, StepClock

BOUNDARY_SAMPLES = 1000


@dataclass(frozen=True)
class Measurement:
    """What one rank saw: seconds per step, and the wall time between the two fences."""

    step_seconds: List[float]
    warmup_step_seconds: List[float]
    window_seconds: float
    clock: str
    boundary_seconds: float


def measure_steps(session: "Session", barrier: Callable[[], None], case: Case) -> Measurement:
    """Run the warm-up steps, then the measured ones between two fences.

    A fence is a wait for the device, then a barrier over all ranks; the second one is the wait
    alone, so that each rank's window ends with its own last step. Inside the window there is
    nothing but steps and the clock's marks.

    In mode "val" a step is one batch's inference, which waits for its end, and its time is by the
    host's clock in every framework: the latency that a caller sees, from the call to the logits.
    Times between device events would leave out how long the call takes to reach the device, and
    batches that are queued one behind the other have no latency of their own.
    """
    step = session.infer if case.mode == VAL else session.step
    make_clock = HostClock if case.mode == VAL else session.make_clock
    warmup_clock = make_clock(case.warmup_steps + 1)
    clock = make_clock(case.measured_steps + 1)
    session.synchronize()
    warmup_clock.mark(0)
    for index in range(1, case.warmup_steps + 1):
        step()
        warmup_clock.mark(index)

    session.reset_peak_memory()
    session.synchronize()
    barrier()
    start = time.perf_counter()
    clock.mark(0)
    for index in range(1, case.measured_steps + 1):
        step()
        clock.mark(index)
    session.synchronize()
    window_seconds = time.perf_counter() - start

    return Measurement(
        step_seconds=clock.read_step_seconds(),
        warmup_step_seconds=warmup_clock.read_step_seconds(),
        window_seconds=window_seconds,
        clock=clock.name,
        boundary_seconds=_measure_boundary(session, make_clock(BOUNDARY_SAMPLES + 1)),
    )


def _measure_boundary(session: "Session", clock: "StepClock") -> float:
    """Host seconds that taking one boundary costs, averaged over many."""
    start = time.perf_counter()
    for index in range(BOUNDARY_SAMPLES + 1):
        clock.mark(index)
    seconds = time.perf_counter() - start
    session.synchronize()
    return seconds / (BOUNDARY_SAMPLES + 1)
