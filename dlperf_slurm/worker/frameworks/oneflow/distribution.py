"""Ranks -> gradients that are averaged over them, in eager mode and in a graph."""

from typing import Any, Dict

import oneflow as flow
from oneflow import nn


def distribute(model: nn.Module) -> nn.Module:
    """Average the gradients of an eager backward pass; the model is changed.

    Each becomes a part of a buffer for several, which must be zero before the next pass.
    """
    # Running statistics stay per rank, as in the other frameworks: training does not read them,
    # and to send them would be one more collective in each step.
    return nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)


def make_global(
    model: nn.Module, batch: Dict[str, flow.Tensor], device: str
) -> Dict[str, flow.Tensor]:
    """Make the batches of all ranks one, each rank having its part; the model is changed.

    A graph takes no other tensors when there are several ranks. Batch normalization is still
    over the samples of a rank.
    """
    placement = flow.placement.all(device)
    model.to_global(placement=placement, sbp=flow.sbp.broadcast)
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
