"""A case and its ranks -> what updates the weights: optimizer, loss scale, gradient averaging."""

from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import megengine as mge
import numpy
from megengine import Parameter, amp, distributed
from megengine import optimizer as optim

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import models
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.update_rule import ADAMW, Rule


def make_optimizer(
    rule: Rule, parameters: Dict[str, Parameter], definitions: Iterable[models.Parameter]
) -> optim.Optimizer:
    groups = group_by_decay(parameters, definitions, rule.weight_decay)
    if rule.name == ADAMW:
        optimizer = optim.AdamW(groups, lr=rule.learning_rate, betas=rule.betas, eps=rule.epsilon)
    else:
        optimizer = optim.SGD(groups, lr=rule.learning_rate, momentum=rule.momentum)
    for group in optimizer.param_groups:
        # a trace would freeze a Python number at its first value, but reads a tensor in each step
        group["lr"] = mge.Tensor(numpy.float32(rule.learning_rate))
    return optimizer


def group_by_decay(
    parameters: Dict[str, Parameter],
    definitions: Iterable[models.Parameter],
    weight_decay: float,
) -> List[Dict[str, Any]]:
    """Return optimizer parameter groups: with weight decay for matrices and kernels, else without.

    Biases and normalization weights have one dimension in `definitions` and do not decay.
    """
    groups: Dict[bool, List[Parameter]] = {True: [], False: []}
    for name, shape, *_ in definitions:
        groups[len(shape) > 1].append(parameters[name])
    return [
        {"params": groups[True], "weight_decay": weight_decay},
        {"params": groups[False], "weight_decay": 0.0},
    ]


def make_scaler(case: Case) -> Optional[amp.GradScaler]:
    """Return the loss scaler of the case, constant or dynamic, or None if nothing is scaled."""
    if case.axes.constant_loss_scale:
        # growth_interval 0: neither checks for an overflow nor changes the scale
        return amp.GradScaler(init_scale=case.axes.constant_loss_scale, growth_interval=0)
    # GradScaler reads the overflow flag back to the host in every step
    return amp.GradScaler() if case.axes.precision == "amp-fp16" else None


class MpiAverage:
    """Averages all gradients by one MPI all-reduce of a float32 buffer in host memory.

    MegEngine has collectives on GPUs only. Compared to these, the gradients are copied into the
    buffer and out of it, and are sent only after the backward pass.
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
        """Replace each parameter's gradient by the mean over the ranks."""
        for part, parameter in zip(self._parts, self._parameters):
            part[...] = parameter.grad.numpy()
        self._communicator.Allreduce(self._in_place, self._buffer)
        self._buffer /= self._communicator.Get_size()
        for part, parameter in zip(self._parts, self._parameters):
            parameter.grad = mge.Tensor(part)


class NcclAverage:
    """Averages accumulated gradients by MegEngine's all-reduce, after a step's last batch.

    MegEngine's own callback averages during the backward pass, and so sees one batch's gradients
    only.
    """

    def __init__(self, parameters: List[Parameter]) -> None:
        self._parameters = parameters

    def average(self) -> None:
        """Replace each parameter's gradient by the mean over the ranks."""
        for parameter in self._parameters:
            total = distributed.functional.all_reduce_sum(parameter.grad)
            parameter.grad = total / distributed.get_world_size()


def make_average(
    case: Case, rank_info: RankInfo, parameters: List[Parameter]
) -> Tuple[Callable[[], None], List[Any]]:
    """Return a function and callbacks that average gradients over the ranks, by MPI or NCCL.

    Call the function after a step's last backward pass; give the callbacks to the GradManager.
    """
    if rank_info.world_size == 1:
        return do_nothing, []
    if case.axes.gradient_sync == "mpi":
        return MpiAverage(parameters).average, []
    if case.axes.gradient_accumulation > 1:
        return NcclAverage(parameters).average, []
    return do_nothing, [distributed.make_allreduce_cb("mean")]


def do_nothing() -> None:
    """Do nothing: a single rank need not average, and a callback has averaged already."""


def join_process_group(rank_info: RankInfo, device_index: int) -> Optional[Any]:
    """Join MegEngine's process group, on the GPU `device_index`; return rank 0's server, or None.

    Rank 0 starts the server, which ends when the last reference to it is dropped.
    """
    server = distributed.Server(rank_info.master_port) if rank_info.rank == 0 else None
    distributed.init_process_group(
        rank_info.master_address,
        rank_info.master_port,
        rank_info.world_size,
        rank_info.rank,
        device_index,
        backend="nccl",
        device_type="gpu",
    )
    return server
