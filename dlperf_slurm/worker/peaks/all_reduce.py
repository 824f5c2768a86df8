"""The ranks and a number of parameters -> how long all-reduces of several sizes take alone."""

import time
from typing import Any, Iterator, Optional, Tuple

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.peaks import OF_FRAMEWORK, OF_MPI, AllReduce
from dlperf_slurm.worker.peaks import Operation, load_operations

FLOAT_BYTES = 4
SAMPLES = 5
# for the gradients, and for all other sizes together
LIMIT_SECONDS = 2.0
# from what latency limits to what bandwidth limits
OTHER_SIZES_BYTES = (2**16, 2**20, 2**24, 2**28)


def time_all_reduces(case: Case, world: Any, parameter_count: int) -> Iterator[AllReduce]:
    """Yield the times of an all-reduce of the gradients, then of OTHER_SIZES_BYTES as time allows.

    All ranks must call this, after the measured steps, so that its memory is in no figure. It uses
    the framework's collective if there is one, else MPI's with buffers in host memory. Nothing for
    a single rank, without either collective, or if a rank lacks memory or fails.
    """
    if world.size == 1:
        return
    gradients = time_all_reduce(case, world, parameter_count, time.monotonic() + LIMIT_SECONDS)
    if gradients is None:
        return
    yield gradients
    deadline = time.monotonic() + LIMIT_SECONDS
    for size in OTHER_SIZES_BYTES:
        if world.exchange(time.monotonic() > deadline)[0]:
            return
        other = time_all_reduce(case, world, size // FLOAT_BYTES, deadline)
        if other is None:
            return
        yield other


def time_all_reduce(
    case: Case, world: Any, parameter_count: int, deadline: float
) -> Optional[AllReduce]:
    """Time all-reduces of `parameter_count` float32 numbers; return the shortest, or None.

    Each takes as long as on the slowest rank; no more are begun after `deadline` (monotonic). None
    if a rank lacks memory or fails, or if there is neither the framework's collective nor MPI.
    """
    operation, via = _make_operation(case, world, parameter_count)
    # if one rank has no memory left, the others must not wait for it
    if not all(world.exchange(operation is not None)) or operation is None:
        return None
    best = float("inf")
    for sample in range(1 + SAMPLES):
        world.barrier()
        seconds = world.exchange(_time(operation))
        if not all(seconds):
            return None
        is_last = world.exchange(time.monotonic() > deadline)[0]
        # the first all-reduce also connects the ranks
        if sample or is_last:
            best = min(best, max(seconds))
        if is_last:
            break
    return AllReduce(via, FLOAT_BYTES * parameter_count, best)


def _time(operation: Operation) -> float:
    """Run an operation once and return its seconds on this rank; 0 if it failed.

    A failure does not end the case, whose measurement is complete.
    """
    began = time.perf_counter()
    try:
        operation.wait(operation.start())
    except (MemoryError, RuntimeError):
        return 0.0
    return time.perf_counter() - began


def _make_operation(case: Case, world: Any, count: int) -> Tuple[Optional[Operation], str]:
    """Return an all-reduce of `count` float32 numbers, and OF_FRAMEWORK or OF_MPI.

    The operation is None if this rank lacks memory, or if there is neither a collective of the
    framework nor MPI. MPI sums in host memory.
    """
    try:
        operation = _make_own(case, count)
        if operation is not None:
            return operation, OF_FRAMEWORK
        import numpy

        total = world.make_sum(numpy.zeros(count, numpy.float32))
        operation = None if total is None else Operation(total, lambda result: None)
        return operation, OF_MPI
    except (MemoryError, RuntimeError):
        return None, ""


def _make_own(case: Case, count: int) -> Optional[Operation]:
    """Return the framework's own all-reduce of `count` float32 numbers; None if it has none."""
    try:
        operations: Any = load_operations(case.axes.framework)
    except ImportError:
        return None
    make = getattr(operations, "make_all_reduce", None)
    return None if make is None else make(case.device, count)
