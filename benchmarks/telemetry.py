"""The ratio of step times with the sampling process to those without it.

For any Python with NumPy and psutil. A step is a chain of matrix products on all CPUs, so that no
CPU is idle for the sampling process. Windows with and without it alternate, in changing order, so
that a drift of the machine affects both. Both follow the start of the process, because on a busy
machine a process that has just waited is scheduled first.
"""

import dataclasses
import os
import time

import numpy
from rows import Row, print_rows

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.contract.case import Case
from dlperf_slurm.stats.median import compute_median, compute_median_interval
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.telemetry import Sampler

PAIRS = 25
STEPS = 20
SIZE = 768
PRODUCTS = 2

CASE = Case(
    run_id="benchmark",
    case_id="telemetry",
    repeat=1,
    attempt=1,
    axes=Axes(framework="numpy", topology="1n1g", batch_size_per_device=1),
    model="none",
    model_parameters={},
    device="cpu",
    cpus_per_rank=os.cpu_count() or 1,
    warmup_steps=0,
    measured_steps=STEPS,
    seed=1,
)
ALONE = RankInfo(
    rank=0, local_rank=0, world_size=1, host="here", master_address="127.0.0.1", master_port=0
)


def measure_rows(is_quick: bool) -> list[Row]:
    """Return the process's overhead on a step in wall-clock time, and its own share of a CPU."""
    interval_seconds = CASE.telemetry_interval_seconds
    matrices = numpy.random.default_rng(1).standard_normal((2, SIZE, SIZE), dtype=numpy.float32)
    time_window(matrices, interval_seconds, is_sampled=False)
    ratios, shares = [], []
    for pair in range(PAIRS // 5 if is_quick else PAIRS):
        order = [False, True] if pair % 2 else [True, False]
        windows = {
            is_sampled: time_window(matrices, interval_seconds, is_sampled) for is_sampled in order
        }
        ratios.append(windows[True][0] / windows[False][0])
        shares.append(windows[True][1])
    interval = compute_median_interval(ratios)
    spread = f", {interval.low:.4f} to {interval.high:.4f} times" if interval else ""
    return [
        Row(
            part=8,
            name=f"a step with a sample every {interval_seconds:g} s, over one without, by the "
            f"clock: median of {len(ratios)} pairs of {STEPS} steps{spread}",
            measured=100 * (compute_median(ratios) - 1),
            unit="% longer",
        ),
        Row(
            part=8,
            name="what the sampling process takes of one CPU",
            measured=100 * compute_median(shares),
            unit="%",
        ),
    ]


def time_window(
    matrices: numpy.ndarray, interval_seconds: float, is_sampled: bool
) -> tuple[float, float]:
    """Return a window's wall-clock seconds, and the sampling process's share of a CPU in it."""
    case = dataclasses.replace(CASE, telemetry_interval_seconds=interval_seconds)
    sampler = Sampler(case, ALONE)
    sampler.await_ready()
    if not is_sampled:
        sampler.finish()
    sampler.start_window()
    start = time.perf_counter()
    for _ in range(STEPS):
        take_step(matrices)
    seconds = time.perf_counter() - start
    sampler.end_window()
    samples = sampler.finish()
    if is_sampled and not samples.series:
        raise SystemExit(f"nothing was sampled: {samples.problem or 'this Python has no psutil'}")
    return seconds, samples.cpu_seconds / seconds


def take_step(matrices: numpy.ndarray) -> None:
    product, factor = matrices
    for _ in range(PRODUCTS):
        product = product @ factor
        product /= numpy.abs(product).max()


if __name__ == "__main__":
    print_rows(measure_rows)
