"""Ranks -> a model whose gradients become their mean: DistributedDataParallel or Horovod."""

from contextlib import contextmanager, nullcontext
from typing import Any, Callable, ContextManager, Iterator, List, NamedTuple

import torch
from torch import distributed, nn

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import Placement


class Distribution(NamedTuple):
    """`model` takes the inputs; after `wait` the gradients of a backward pass are the mean's.

    Those of one within `without_mean` are kept on their rank, for the next one to send.
    """

    model: nn.Module
    wait: Callable[[], None]
    without_mean: Callable[[], ContextManager[Any]]


def join_ranks(case: Case, placement: Placement, device: torch.device) -> None:
    if placement.world_size == 1:
        return
    if case.axes.distribution == "horovod":
        join_horovod(placement)
    else:
        join_process_group(placement, device)


def join_process_group(placement: Placement, device: torch.device) -> None:
    distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=f"tcp://{placement.master_address}:{placement.master_port}",
        rank=placement.rank,
        world_size=placement.world_size,
        device_id=device if device.type == "cuda" else None,
    )


def join_horovod(placement: Placement) -> None:
    import horovod.torch as hvd

    hvd.init()
    if hvd.size() != placement.world_size:
        raise RuntimeError(
            f"Horovod sees {hvd.size()} rank(s), MPI {placement.world_size}: "
            "was it built for this MPI?"
        )


def distribute(
    case: Case, placement: Placement, model: nn.Module, device: torch.device
) -> Distribution:
    if placement.world_size == 1:
        return Distribution(model, do_nothing, nullcontext)
    if case.axes.distribution == "horovod":
        mean = HorovodMean(model)
        return Distribution(model, mean.wait, mean.pause)
    wrapped = wrap_in_ddp(model, device)
    return Distribution(wrapped, do_nothing, wrapped.no_sync)


def do_nothing() -> None:
    """One rank's gradients are the mean; DDP's are when the backward pass returns."""


def wrap_in_ddp(model: nn.Module, device: torch.device) -> nn.parallel.DistributedDataParallel:
    return nn.parallel.DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        # Running statistics stay per rank, as in the other frameworks: training does not read
        # them, and to send them would be one more collective in each step. (torch 2.13 warns that
        # the argument has a new name, which older ones lack.)
        broadcast_buffers=False,
    )


class HorovodMean:
    """Averages each gradient while those of the layers before it are still being computed.

    As Horovod's DistributedOptimizer does; but that makes a new optimizer of the same class,
    which has neither its state nor what a GradScaler asks a fused one for.
    """

    def __init__(self, model: nn.Module) -> None:
        import horovod.torch as hvd

        self._horovod = hvd
        self._handles: List[int] = []
        self._is_paused = False
        for name, parameter in model.named_parameters():
            parameter.register_post_accumulate_grad_hook(self._make_hook(name))

    def _make_hook(self, name: str) -> Callable[[torch.Tensor], None]:
        def start_averaging(parameter: Any) -> None:
            if self._is_paused:
                return
            handle = self._horovod.allreduce_async_(
                parameter.grad, name=name, op=self._horovod.Average
            )
            self._handles.append(handle)

        return start_averaging

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Gradients stay on their rank."""
        self._is_paused = True
        yield
        self._is_paused = False

    def wait(self) -> None:
        for handle in self._handles:
            self._horovod.synchronize(handle)
        self._handles.clear()


def leave_ranks(case: Case) -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()
    if case.axes.distribution == "horovod" and case.world_size > 1:
        import horovod.torch as hvd

        hvd.shutdown()
