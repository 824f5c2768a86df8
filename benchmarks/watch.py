"""The watchdog's overhead: time of empty steps with it, less that of the same steps without it.

The loop is that of worker/measure.py. The watchdog adds the store of a number to each step, and a
thread that wakes every few seconds. Loops with and without it alternate.
"""

import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rows import Row, print_rows

from dlperf_slurm.worker.clock import HostClock
from dlperf_slurm.worker.processes import block_signal
from dlperf_slurm.worker.progress import MEASURED
from dlperf_slurm.worker.watchdog import watch_rank

PAIRS = 15
STEPS = 1_000_000


def measure_rows(is_quick: bool) -> list[Row]:
    """Return the watchdog's overhead as a share of a step of 1 ms."""
    block_signal()
    world: Any = SimpleNamespace(rank=0, size=1, hosts=())
    added = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(3 if is_quick else PAIRS):
            bare = time_steps()
            with watch_rank(Path(folder), None, world) as position:
                added.append(time_watched_steps(position) - bare)
    return [
        Row(
            part=8,
            name="what the watch over a rank that hangs adds to a step of 1 ms",
            measured=100 * statistics.median(added) / 1e6,
            unit="%",
            target=0.1,
        )
    ]


def time_steps() -> float:
    """Return the nanoseconds of a step that does nothing."""
    clock = HostClock(STEPS + 1)
    start = time.perf_counter()
    for index in range(1, STEPS + 1):
        do_nothing()
        clock.mark(index)
    return (time.perf_counter() - start) / STEPS * 1e9


def time_watched_steps(position: Any) -> float:
    """Return the nanoseconds of an empty step that also stores its number."""
    clock = HostClock(STEPS + 1)
    position.enter(MEASURED, STEPS, clock)
    start = time.perf_counter()
    for index in range(1, STEPS + 1):
        do_nothing()
        clock.mark(index)
        position.step = index
    return (time.perf_counter() - start) / STEPS * 1e9


def do_nothing() -> None:
    """Take the place of a step."""


if __name__ == "__main__":
    print_rows(measure_rows)
