"""The overhead of the measuring loop: its steps beside the same steps in a bare loop.

The loop is the worker's own, with its clock, its data waits and the watchdog for hanging ranks. A
step spins for 1 ms without system calls, which would leave caches cold, and records its begin and
end: the time between two steps is the loop's. Windows of both kinds alternate in one process, in
changing order. The median of each window counts, so that a preempted step has no weight. The cost
of the sampling process is measured in telemetry.py.
"""

import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any, Optional

from rows import Row, print_rows
from telemetry import CASE

from dlperf_slurm.stats.median import compute_median, compute_median_interval
from dlperf_slurm.worker.clock import HostClock
from dlperf_slurm.worker.measure import measure_steps
from dlperf_slurm.worker.processes import block_signal
from dlperf_slurm.worker.progress import Position
from dlperf_slurm.worker.watchdog import watch_rank

PAIRS = 100
STEPS = 100
STEP_SECONDS = 0.001


def measure_rows(is_quick: bool) -> list[Row]:
    """Return the loop's overhead on a step of 1 ms, with and without batches, and a mark's."""
    pairs = PAIRS // 10 if is_quick else PAIRS
    block_signal()
    world: Any = SimpleNamespace(rank=0, size=1, hosts=())
    marks: list[float] = []
    with tempfile.TemporaryDirectory() as folder, watch_rank(Path(folder), None, world) as position:
        rows = [
            compare("batch on the device", None, pairs, position, marks),
            compare("batches of a loader", itertools.repeat(None), pairs, position, marks),
        ]
    mark = Row(
        part=8,
        name="what a mark takes of a step of 1 ms, as each record has it (boundary_seconds)",
        measured=100 * compute_median(marks) / STEP_SECONDS,
        unit="%",
        target=0.1,
    )
    return [*rows, mark]


def compare(
    name: str,
    batches: Optional[Iterator[None]],
    pairs: int,
    position: Position,
    marks: list[float],
) -> Row:
    """Return the loop's overhead as the median of the pairs; append times of marks to `marks`."""
    added = []
    for pair in range(pairs):
        gaps = {}
        for is_measured in (pair % 2 == 0, pair % 2 == 1):
            session = SpinningSession()
            if is_measured:
                marks.append(run_measured(session, batches, position))
            else:
                run_bare(session, batches)
            gaps[is_measured] = compute_median(session.gaps)
        added.append(100 * (gaps[True] - gaps[False]) / STEP_SECONDS)
    interval = compute_median_interval(added)
    spread = f", {interval.low:.3f} to {interval.high:.3f} %" if interval else ""
    return Row(
        part=8,
        name=f"what the loop adds to a step of 1 ms, {name} ({pairs} pairs of windows{spread})",
        measured=compute_median(added),
        unit="%",
        target=0.1,
        why_missed="between two steps of the loop lie a mark, whose own cost the row below has, "
        "the number of the step for who watches, and with a loader two looks at the clock",
    )


class SpinningSession:
    """A session whose step takes STEP_SECONDS; `gaps` are the seconds between two steps."""

    make_clock = HostClock

    def __init__(self) -> None:
        self.gaps: list[float] = []
        self._ended: Optional[float] = None

    def step(self) -> None:
        begun = perf_counter()
        if self._ended is not None:
            self.gaps.append(begun - self._ended)
        while perf_counter() < begun + STEP_SECONDS:
            pass
        self._ended = perf_counter()

    def load(self, batch: None) -> None: ...

    def synchronize(self) -> None: ...

    def reset_peak_memory(self) -> None: ...


def run_bare(session: SpinningSession, batches: Optional[Iterator[None]]) -> None:
    """Run a window of steps in a bare loop."""
    if batches is None:
        for _ in range(STEPS):
            session.step()
    else:
        for _ in range(STEPS):
            session.load(next(batches))
            session.step()
    session.synchronize()


def run_measured(
    session: SpinningSession, batches: Optional[Iterator[None]], position: Position
) -> float:
    """Run a window in the worker's loop; return the seconds that it measured for a mark."""
    measurement = measure_steps(
        session,  # type: ignore[arg-type]
        lambda: None,
        replace(CASE, measured_steps=STEPS),
        batches,
        position=position,
    )
    return measurement.boundary_seconds


if __name__ == "__main__":
    print_rows(measure_rows)
