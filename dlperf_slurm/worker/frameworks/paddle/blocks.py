"""A model's repeated blocks, computed again in its backward pass."""

from functools import partial

from paddle import nn
from paddle.distributed.fleet.utils import recompute


def checkpoint_blocks(model: nn.Layer) -> None:
    """Of each, a training keeps the inputs alone, and computes the rest again when it is needed."""
    for child in model.children():
        if isinstance(child, (nn.LayerList, nn.Sequential)):
            for block in child:
                block.forward = partial(recompute, block.forward, use_reentrant=False)
