"""python -m dlperf_slurm.worker.peaks.device_peak: a framework -> its device's peak as JSON.

It runs in a process of its own, before the ranks import the framework, so that its settings, its
memory and its failures end with it.
"""

import json
import statistics
import sys
import time
from dataclasses import asdict
from typing import Callable, List, Sequence

from dlperf_slurm.contract.peaks import DevicePeak
from dlperf_slurm.worker.host import keep_to_cpus
from dlperf_slurm.worker.peaks import Operation, PeakSettings, load_operations

FLOAT_BYTES = 4
# no device is fastest below the first size, and few need the last
PRODUCT_SIZES = (512, 1024, 2048, 4096, 8192, 16384)
# far larger than any cache
COPIED_BYTES = 256 * 2**20

# a sample is several calls in a row, so that waiting for the end costs nothing
SAMPLE_SECONDS = 0.05
SAMPLES = 5
SEARCH_SECONDS = 1.0
# An idle device is at first faster than it can sustain: an H200 multiplies random numbers at 782
# TFLOP/s for a quarter of a second, and at 664 TFLOP/s from then on (docs/gpu.md).
SUSTAINED_SECONDS = 1.2
COPY_SECONDS = 0.5
# the product of the next size takes eight times as long
LONGEST_PRODUCT_SECONDS = 0.1


def main(arguments: Sequence[str]) -> int:
    """Print a DevicePeak as JSON; arguments are HOST FRAMEWORK DEVICE NUMBER_FORMAT CPUS."""
    host, framework, device, number_format, cpus = arguments
    if device == "cpu":
        keep_to_cpus(int(cpus), 0)
    setting = PeakSettings(device, number_format, int(cpus))
    started = time.monotonic()
    operations = load_operations(framework)
    size = find_best_size(lambda size: operations.make_product(setting, size))
    product_seconds = measure_sustained(operations.make_product(setting, size), SUSTAINED_SECONDS)
    copy = operations.make_copy(setting, COPIED_BYTES // FLOAT_BYTES)
    copy_seconds = measure_sustained(copy, COPY_SECONDS)
    seconds = time.monotonic() - started
    peak = DevicePeak(
        host, 2 * size**3 / product_seconds, size, 2 * COPIED_BYTES / copy_seconds, seconds
    )
    # on a line of its own, after whatever a framework prints
    print(f"\n{json.dumps(asdict(peak))}", flush=True)
    return 0


def find_best_size(make_product: Callable[[int], Operation]) -> int:
    """Return the size in PRODUCT_SIZES with the best FLOP/s, as far as SEARCH_SECONDS suffice."""
    deadline = time.monotonic() + SEARCH_SECONDS
    best = (0.0, 0)
    for size in PRODUCT_SIZES:
        seconds = find_best_seconds(make_product(size), deadline - time.monotonic())
        best = max(best, (2 * size**3 / seconds, size))
        if seconds > LONGEST_PRODUCT_SECONDS or time.monotonic() > deadline:
            break
    return best[1]


def find_best_seconds(operation: Operation, limit_seconds: float) -> float:
    """Return the least seconds per call of an operation, over samples of SAMPLE_SECONDS.

    At most SAMPLES samples are taken, for `limit_seconds`.
    """
    deadline = time.monotonic() + limit_seconds
    # the first call may compile, and wake the device
    operation.wait(operation.start())
    best = time_calls(operation, 1)
    calls = count_calls(best)
    for _ in range(SAMPLES):
        if time.monotonic() > deadline:
            break
        best = min(best, time_calls(operation, calls) / calls)
    return best


def measure_sustained(operation: Operation, least_seconds: float) -> float:
    """Repeat an operation for at least `least_seconds`; return its sustained seconds per call.

    That is the median over the second half of this time.
    """
    operation.wait(operation.start())
    calls = count_calls(time_calls(operation, 1))
    samples: List[float] = []
    deadline = time.monotonic() + least_seconds
    while not samples or time.monotonic() < deadline:
        samples.append(time_calls(operation, calls) / calls)
    return statistics.median(samples[len(samples) // 2 :])


def count_calls(seconds: float) -> int:
    """Return how many calls of `seconds` each fill a sample of SAMPLE_SECONDS, at least 1."""
    return max(1, int(SAMPLE_SECONDS / seconds))


def time_calls(operation: Operation, calls: int) -> float:
    """Return the seconds of `calls` calls of an operation, until the last one has ended."""
    began = time.perf_counter()
    for _ in range(calls):
        last = operation.start()
    operation.wait(last)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
