"""python -m dlperf_slurm.worker.peaks.device_peak: a framework -> its device's peak as JSON.

A process of its own, before the ranks load the framework: what it sets and what memory it takes
ends with it, and so does whatever goes wrong in it.
"""

import json
import sys
import time
from dataclasses import asdict
from typing import Callable, Sequence, Tuple

from dlperf_slurm.contract.peaks import DevicePeak
from dlperf_slurm.worker.host import keep_to_cpus
from dlperf_slurm.worker.peaks import Operation, Setting, load_operations

FLOAT_BYTES = 4
# no device has its best rate below the first of these, and few need the last
PRODUCT_SIZES = (512, 1024, 2048, 4096, 8192, 16384)
# far more than fits into a cache
COPIED_BYTES = 256 * 2**20

# of some calls in a row, so that waiting for their end costs nothing
SAMPLE_SECONDS = 0.05
SAMPLES = 5
PRODUCT_SECONDS = 1.5
COPY_SECONDS = 0.5
# a product of the next size takes eight times as long
LONGEST_PRODUCT_SECONDS = 0.1


def main(arguments: Sequence[str]) -> int:
    """The arguments are HOST FRAMEWORK DEVICE NUMBER_FORMAT CPUS; prints a DevicePeak."""
    host, framework, device, number_format, cpus = arguments
    if device == "cpu":
        keep_to_cpus(int(cpus), 0)
    setting = Setting(device, number_format, int(cpus))
    started = time.monotonic()
    operations = load_operations(framework)
    flops_per_s, size = find_best_product(lambda size: operations.make_product(setting, size))
    copy = operations.make_copy(setting, COPIED_BYTES // FLOAT_BYTES)
    copied_bytes_per_s = 2 * COPIED_BYTES / find_best_seconds(copy, COPY_SECONDS)
    seconds = time.monotonic() - started
    peak = DevicePeak(host, flops_per_s, size, copied_bytes_per_s, seconds)
    # what a framework prints stands before it
    print(f"\n{json.dumps(asdict(peak))}", flush=True)
    return 0


def find_best_product(make_product: Callable[[int], Operation]) -> Tuple[float, int]:
    """The best rate of any size, in operations per second, and that size."""
    deadline = time.monotonic() + PRODUCT_SECONDS
    best = (0.0, 0)
    for size in PRODUCT_SIZES:
        seconds = find_best_seconds(make_product(size), deadline - time.monotonic())
        best = max(best, (2 * size**3 / seconds, size))
        if seconds > LONGEST_PRODUCT_SECONDS or time.monotonic() > deadline:
            break
    return best


def find_best_seconds(operation: Operation, limit_seconds: float) -> float:
    """Least seconds of a call, by samples of SAMPLE_SECONDS; none begins after the limit."""
    deadline = time.monotonic() + limit_seconds
    # the first may compile, and wake a device
    operation.wait(operation.start())
    best = time_calls(operation, 1)
    calls = max(1, int(SAMPLE_SECONDS / best))
    for _ in range(SAMPLES):
        if time.monotonic() > deadline:
            break
        best = min(best, time_calls(operation, calls) / calls)
    return best


def time_calls(operation: Operation, calls: int) -> float:
    """The seconds from the first start to the end of the last."""
    began = time.perf_counter()
    for _ in range(calls):
        last = operation.start()
    operation.wait(last)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
