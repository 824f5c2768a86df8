"""Ranks -> what makes the mean of their gradients, MegEngine's own collectives or MPI."""

from typing import Any, Callable, List, Optional, Tuple

import megengine as mge
import numpy
from megengine import Parameter, distributed

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import Placement


class MpiAverage:
    """One all-reduce of all gradients, joined in a float32 buffer in host memory.

    MegEngine itself has collectives on GPUs only. What this costs beside them: the gradients are
    copied into the buffer and out of it, and travel when the backward pass is over.
    """

    def __init__(self, parameters: List[Parameter]) -> None:
        from mpi4py import MPI

        self._in_place = MPI.IN_PLACE
        self._communicator = MPI.COMM_WORLD
        self._parameters = parameters
        sizes = [int(numpy.prod(parameter.shape)) for parameter in parameters]
        self._buffer: Any = numpy.empty(sum(sizes), numpy.float32)
        parts = numpy.split(self._buffer, numpy.cumsum(sizes)[:-1])
        self._parts = [part.reshape(parameter.shape) for part, parameter in zip(parts, parameters)]

    def average(self) -> None:
        """Put the mean over the ranks in the place of each parameter's gradient."""
        for part, parameter in zip(self._parts, self._parameters):
            part[...] = parameter.grad.numpy()
        self._communicator.Allreduce(self._in_place, self._buffer)
        self._buffer /= self._communicator.Get_size()
        for part, parameter in zip(self._parts, self._parameters):
            parameter.grad = mge.Tensor(part)


class NcclAverage:
    """MegEngine's all-reduce of what each rank has accumulated, when the last batch is over.

    Its own callback, which averages while the backward pass goes on, sees one batch's gradients.
    """

    def __init__(self, parameters: List[Parameter]) -> None:
        self._parameters = parameters

    def average(self) -> None:
        """Put the mean over the ranks in the place of each parameter's gradient."""
        for parameter in self._parameters:
            total = distributed.functional.all_reduce_sum(parameter.grad)
            parameter.grad = total / distributed.get_world_size()


def make_average(
    case: Case, placement: Placement, parameters: List[Parameter]
) -> Tuple[Callable[[], None], List[Any]]:
    """What is called after the backward pass of a step, and the callbacks within it."""
    if placement.world_size == 1:
        return do_nothing, []
    if case.axes.distribution == "mpi":
        return MpiAverage(parameters).average, []
    if case.axes.gradient_accumulation > 1:
        return NcclAverage(parameters).average, []
    return do_nothing, [distributed.make_allreduce_cb("mean")]


def do_nothing() -> None:
    """One rank's gradients are the mean; those that a callback has averaged are, too."""


def join_process_group(placement: Placement, device_index: int) -> Optional[Any]:
    """Join MegEngine's own ranks; rank 0 gets their server, which ends when nobody refers to it."""
    server = distributed.Server(placement.master_port) if placement.rank == 0 else None
    distributed.init_process_group(
        placement.master_address,
        placement.master_port,
        placement.world_size,
        placement.rank,
        device_index,
        backend="nccl",
        device_type="gpu",
    )
    return server
