"""Time saved by launching a step while the one before it runs, in an environment's Python.

    .venv/environments/jax/bin/python benchmarks/step_ahead.py jax [MODEL ...]

Windows with a wait after each step and windows with the adapter's own clock alternate in one
process, in changing order. Prints medians over the windows of the step time, and the share of its
window that the clock's steps add up to.
"""

import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests")]

from support import sessions  # noqa: E402

from dlperf_slurm.worker.clock import HostClock  # noqa: E402
from dlperf_slurm.worker.measure import BOUNDARY_SAMPLES, measure_boundary  # noqa: E402

PAIRS = 20
STEPS = 50


def main() -> None:
    """Print a line per model."""
    framework, *models = sys.argv[1:]
    for model in models or ("bert", "resnet50"):
        session = sessions.start(sessions.make_case(framework, model))
        print(f"{framework} {model}: {compare(session)}", flush=True)


def compare(session: Any) -> str:
    """Time both kinds of windows of a session, and a mark of its clock."""
    waiting, ahead, shares = [], [], []
    run_window(session, WaitingClock(session, STEPS + 1))
    for pair in range(PAIRS):
        for is_ahead in (pair % 2 == 0, pair % 2 == 1):
            clock = session.make_clock(STEPS + 1) if is_ahead else WaitingClock(session, STEPS + 1)
            seconds = run_window(session, clock)
            (ahead if is_ahead else waiting).append(1000 * seconds / STEPS)
            if is_ahead:
                shares.append(sum(clock.read_step_seconds()) / seconds)
    saved = [one - other for one, other in zip(waiting, ahead)]
    mark = measure_boundary(session, session.make_clock(BOUNDARY_SAMPLES + 1))
    return (
        f"{median(waiting):.2f} ms waiting in each step, {median(ahead):.2f} ms one ahead; "
        f"saved {median(saved):.2f} ms ({sum(one > 0 for one in saved)} of {PAIRS} pairs); "
        f"steps are {100 * median(shares):.1f} % of the window; a mark takes {1e6 * mark:.0f} us"
    )


class WaitingClock(HostClock):
    """A host clock that waits for the end of each step."""

    def __init__(self, session: Any, boundaries: int) -> None:
        super().__init__(boundaries)
        self._session = session

    def mark(self, index: int) -> None:
        self._session.synchronize()
        super().mark(index)


def run_window(session: Any, clock: Any) -> float:
    """Return the seconds of a window, from synchronize to synchronize."""
    session.synchronize()
    start = perf_counter()
    clock.mark(0)
    for index in range(1, STEPS + 1):
        session.step()
        clock.mark(index)
    session.synchronize()
    return perf_counter() - start


if __name__ == "__main__":
    main()
