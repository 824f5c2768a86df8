"""A model's repeated blocks: each split over the ranks, or computed again in its backward pass."""

from contextlib import contextmanager
from functools import partial
from typing import Any, Callable, ContextManager, Iterator

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.checkpoint import checkpoint


def list_blocks(model: nn.Module) -> Iterator[nn.Module]:
    """The members of the lists that the model is made of."""
    for child in model.children():
        if isinstance(child, (nn.ModuleList, nn.Sequential)):
            yield from child


def checkpoint_blocks(model: nn.Module) -> None:
    """Of each, a training keeps the inputs alone, and computes the rest again when it is needed."""
    for block in list_blocks(model):
        forward: Any = partial(checkpoint, block.forward, use_reentrant=False)
        block.forward = forward


def shard(model: nn.Module, device: torch.device) -> Callable[[], ContextManager[None]]:
    """Have each rank keep its part of all parameters, of their gradients and what follows of them.

    A block's parameters are gathered when it is computed, and again for its backward pass (FSDP2);
    those beside the blocks once a step. It puts a model in host memory on the device, block by
    block. Gradients of a backward pass within the context that is returned are kept unsplit.
    """
    from torch.distributed.fsdp import fully_shard

    # else a build for GPUs takes these, whatever the case's device is
    mesh = init_device_mesh(device.type, (distributed.get_world_size(),))
    for block in list_blocks(model):
        fully_shard(block, mesh=mesh)
    root: Any = fully_shard(model, mesh=mesh)

    @contextmanager
    def pause() -> Iterator[None]:
        root.set_requires_gradient_sync(False)
        yield
        root.set_requires_gradient_sync(True)

    return pause
