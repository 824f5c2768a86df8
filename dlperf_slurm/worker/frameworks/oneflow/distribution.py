"""Ranks -> gradients that are averaged over them, in eager mode and in a graph."""

from contextlib import contextmanager
from typing import Any, Callable, ContextManager, Iterator, NamedTuple

import oneflow as flow
from oneflow import nn

from dlperf_slurm.worker.frameworks.oneflow.pipeline import Batch


class Distribution(NamedTuple):
    """After a backward pass of `model`, gradients are the mean's.

    Those of one within `without_mean` are kept on their rank, for the next one to send.
    """

    model: nn.Module
    without_mean: Callable[[], ContextManager[Any]]


def distribute(model: nn.Module) -> Distribution:
    """Average the gradients of an eager backward pass; the model is changed.

    Each becomes a part of a buffer for several, which must be zero before the next step.
    """
    # Running statistics stay per rank, as in the other frameworks: training does not read them,
    # and to send them would be one more collective in each step.
    wrapped = nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    return Distribution(wrapped, SkippedMean(wrapped).pause)


class SkippedMean:
    """What DistributedDataParallel (0.9) has no switch for; two things undo what it does.

    It sends no buffer twice after a forward pass, and divides all that a backward pass has added up
    by the number of ranks.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._is_paused = False
        # after the model's own hook, which begins a new backward pass
        model.register_forward_hook(self._mark_as_sent)

    def _mark_as_sent(self, model: nn.Module, inputs: Any, outputs: Any) -> None:
        if self._is_paused:
            for state in model._ddp_state_for_reversed_params.values():
                state[:] = True, True

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Gradients stay on their rank."""
        self._is_paused = True
        yield
        self._is_paused = False
        for buffer in self._model._bucket_tensors:
            buffer.mul_(flow.env.get_world_size())


def make_model_global(model: nn.Module, device: str) -> None:
    """Make the models of all ranks one, which each rank has a copy of; the model is changed.

    A graph takes no other tensors when there are several ranks. Batch normalization is still over
    the samples of a rank.
    """
    model.to_global(placement=flow.placement.all(device), sbp=flow.sbp.broadcast)


def make_global(batch: Batch, device: str) -> Batch:
    """Make the batches of all ranks one, each rank having its part."""
    placement = flow.placement.all(device)
    return {
        name: tensor.to_global(placement=placement, sbp=flow.sbp.split(0))
        for name, tensor in batch.items()
    }


def to_numpy(tensor: flow.Tensor) -> Any:
    """A float32 copy in host memory, in the tensor's logical layout; of all ranks where global."""
    tensor = tensor.detach()
    if tensor.is_global:
        tensor = tensor.to_global(sbp=flow.sbp.broadcast).to_local()
    return tensor.to("cpu", flow.float32).numpy().copy()


def read_loss(loss: flow.Tensor) -> float:
    """This rank's own loss, of which a global tensor holds the share in the mean of all ranks."""
    if loss.is_global:
        share = loss.to_global(sbp=flow.sbp.partial_sum).to_local()
        return float(share.numpy()) * flow.env.get_world_size()
    return float(loss.numpy())
