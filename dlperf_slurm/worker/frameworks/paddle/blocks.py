"""A model's repeated blocks -> blocks that recompute their activations in the backward pass."""

from functools import partial

from paddle import nn
from paddle.distributed.fleet.utils import recompute


def checkpoint_blocks(model: nn.Layer) -> None:
    """Enable activation checkpointing: recompute each block in the backward pass."""
    for child in model.children():
        if isinstance(child, (nn.LayerList, nn.Sequential)):
            for block in child:
                block.forward = partial(recompute, block.forward, use_reentrant=False)
