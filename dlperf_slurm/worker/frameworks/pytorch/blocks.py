"""A model's repeated blocks -> blocks that are sharded over the ranks or recompute activations."""

from contextlib import contextmanager
from functools import partial
from typing import Any, Callable, ContextManager, Iterator, Optional

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.checkpoint import checkpoint


def list_blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the model's repeated blocks: the members of its ModuleList and Sequential children."""
    for child in model.children():
        if isinstance(child, (nn.ModuleList, nn.Sequential)):
            yield from child


def checkpoint_blocks(model: nn.Module) -> None:
    """Enable activation checkpointing: recompute each of `list_blocks` in the backward pass."""
    for block in list_blocks(model):
        forward: Any = partial(checkpoint, block.forward, use_reentrant=False)
        block.forward = forward


def shard(
    model: nn.Module, device: torch.device, gathered_type: Optional[torch.dtype] = None
) -> Callable[[], ContextManager[None]]:
    """Shard parameters, gradients and optimizer state over all ranks (FSDP2).

    A block's parameters are all-gathered for its forward pass and again for its backward pass;
    parameters outside of the blocks are gathered once a batch. A model in host memory moves to
    `device` block by block. Returns a function that makes a context manager: gradients of a
    backward pass within it are kept unreduced and unsharded on their rank.

    `gathered_type` is that of gathered parameters, if not their own; gradients are still averaged
    in the parameters' own type. Activations are autocast's, as without sharding.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    own_type = next(model.parameters()).dtype
    policy = MixedPrecisionPolicy(gathered_type, own_type, cast_forward_inputs=False)

    # without this mesh a CUDA build of torch would shard over GPUs, whatever the case's device is
    mesh = init_device_mesh(device.type, (distributed.get_world_size(),))
    for block in list_blocks(model):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    root: Any = fully_shard(model, mesh=mesh, mp_policy=policy)

    @contextmanager
    def pause() -> Iterator[None]:
        root.set_requires_gradient_sync(False)
        yield
        root.set_requires_gradient_sync(True)

    return pause
