"""A session that can step -> step times and the window; the only timing loop there is."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, List

if TYPE_CHECKING:
    from dlperf_slurm.worker.frameworks import Session

BOUNDARY_SAMPLES = 1000


@dataclass(frozen=True)
class Measurement:
    """What one rank saw: seconds per step, and the wall time between the two fences."""

    step_seconds: List[float]
    warmup_step_seconds: List[float]
    window_seconds: float
    clock: str
    boundary_seconds: float


def measure_steps(
    session: "Session", barrier: Callable[[], None], warmup_steps: int, measured_steps: int
) -> Measurement:
    """Run the warm-up steps, then the measured ones between two fences.

    A fence is a wait for the device, then a barrier over all ranks; the second one is the wait
    alone, so that each rank's window ends with its own last step. Inside the window there is
    nothing but steps and the clock's marks.
    """
    warmup_clock = session.make_clock(warmup_steps + 1)
    clock = session.make_clock(measured_steps + 1)
    session.synchronize()
    warmup_clock.mark(0)
    for index in range(1, warmup_steps + 1):
        session.step()
        warmup_clock.mark(index)

    session.reset_peak_memory()
    session.synchronize()
    barrier()
    start = time.perf_counter()
    clock.mark(0)
    for index in range(1, measured_steps + 1):
        session.step()
        clock.mark(index)
    session.synchronize()
    window_seconds = time.perf_counter() - start

    return Measurement(
        step_seconds=clock.read_step_seconds(),
        warmup_step_seconds=warmup_clock.read_step_seconds(),
        window_seconds=window_seconds,
        clock=clock.name,
        boundary_seconds=_measure_boundary(session),
    )


def _measure_boundary(session: "Session") -> float:
    """Host seconds that taking one boundary costs, averaged over many."""
    clock = session.make_clock(BOUNDARY_SAMPLES + 1)
    start = time.perf_counter()
    for index in range(BOUNDARY_SAMPLES + 1):
        clock.mark(index)
    seconds = time.perf_counter() - start
    session.synchronize()
    return seconds / (BOUNDARY_SAMPLES + 1)
