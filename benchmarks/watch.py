"""Time of empty steps with the watch over that of the same steps without it: the cost of a step.

    PYTHONPATH=. python benchmarks/watch.py

The loop is that of worker/measure.py. The watch adds the store of a number to each step, and a
thread that looks every few seconds. Loops with and without it alternate.
"""

import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dlperf_slurm.worker.clock import HostClock
from dlperf_slurm.worker.position import MEASURED
from dlperf_slurm.worker.time_limit import hold_back_signal
from dlperf_slurm.worker.watch import watch_rank

PAIRS = 15
STEPS = 1_000_000


def main() -> None:
    """Print the nanoseconds of a step without the watch and with it, and what it adds to 1 ms."""
    hold_back_signal()
    world: Any = SimpleNamespace(rank=0, size=1, hosts=())
    bare, watched = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(PAIRS):
            bare.append(time_steps())
            with watch_rank(Path(folder), None, world) as position:
                watched.append(time_watched_steps(position))
    without, with_watch = statistics.median(bare), statistics.median(watched)
    added = statistics.median(b - a for a, b in zip(bare, watched))
    print(f"{without:.0f} ns per empty step without the watch, {with_watch:.0f} ns with it")
    print(f"of a step of 1 ms the watch is {added / 1e6:.2e}")


def time_steps() -> float:
    """Nanoseconds of a step that does nothing."""
    clock = HostClock(STEPS + 1)
    start = time.perf_counter()
    for index in range(1, STEPS + 1):
        do_nothing()
        clock.mark(index)
    return (time.perf_counter() - start) / STEPS * 1e9


def time_watched_steps(position: Any) -> float:
    """The same, with the number of the step stored."""
    clock = HostClock(STEPS + 1)
    position.enter(MEASURED, STEPS, clock)
    start = time.perf_counter()
    for index in range(1, STEPS + 1):
        do_nothing()
        clock.mark(index)
        position.step = index
    return (time.perf_counter() - start) / STEPS * 1e9


def do_nothing() -> None:
    """A step."""


if __name__ == "__main__":
    main()
