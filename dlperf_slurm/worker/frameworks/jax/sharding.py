"""Weights sharded over the ranks -> whole weights where a layer reads them, and back."""

from functools import partial
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import jax
from jax import Array, lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from dlperf_slurm.contract.axes import SHARDED
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks.jax.device import RANKS, Arrays

# checkpoint name of gathered weights; the backward pass gathers these again
GATHERED = "gathered"
# the sharded axis of each weight; None for a weight that every rank has whole
SplitAxes = Mapping[str, Optional[int]]
# a rank's part, its sharded axis -> the whole array
Gather = Callable[[Array, int], Array]


def is_sharded(case: Case) -> bool:
    """Return whether weights are sharded over the ranks; a single rank keeps them whole."""
    return case.axes.gradient_sync == SHARDED and case.world_size > 1


def find_split_axis(case: Case, shape: Tuple[int, ...]) -> Optional[int]:
    """Return the axis along which to shard a weight of this shape over the ranks, or None.

    That is the first axis that can be split evenly; vectors are not sharded.
    """
    if not is_sharded(case) or len(shape) < 2:
        return None
    return next((axis for axis, size in enumerate(shape) if size % case.world_size == 0), None)


def make_specs(axes: SplitAxes) -> Dict[str, P]:
    """Return the JAX PartitionSpec of each weight, by the axis along which it is sharded.

    An axis of None is for a weight that every rank has whole. The specs also fit all arrays of the
    weights' shapes, such as gradients.
    """
    return {name: P() if axis is None else P(*[None] * axis, RANKS) for name, axis in axes.items()}


def make_shardings(mesh: Mesh, specs: Any) -> Any:
    """Return the tree `specs` with each PartitionSpec replaced by a NamedSharding on the mesh."""
    return jax.tree.map(
        lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda node: isinstance(node, P)
    )


def choose_gather(case: Case) -> Gather:
    """Return the all-gather of a sharded weight for the case's device, with its gradient.

    The gradient is the sum over all ranks, of which each rank gets its part.
    """
    return gather_by_gloo if case.device == "cpu" else gather


def gather(part: Array, axis: int) -> Array:
    """All-gather the ranks' parts of a weight along `axis`; the gradient is a reduce-scatter."""
    return lax.all_gather(part, RANKS, axis=axis, tiled=True)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def gather_by_gloo(part: Array, axis: int) -> Array:
    """All-gather the ranks' parts along `axis`; the gradient is an all-to-all and a local sum.

    Gloo's reduce-scatter may overwrite data that it has yet to send: rank 0 then gets wrong values,
    from 64 KiB on (github.com/jax-ml/jax/issues/40830; jaxlib 0.10.2 too).
    """
    return gather(part, axis)


def keep_nothing(part: Array, axis: int) -> Tuple[Array, None]:
    """Return the gathered weight, and None to keep: the forward pass of `gather_by_gloo`.

    For jax.custom_vjp.
    """
    return gather(part, axis), None


def sum_own_part(axis: int, _: None, gradient: Array) -> Tuple[Array]:
    """Return the sum over all ranks' gradients of this rank's part of a weight.

    The backward pass of `gather_by_gloo`. It sends as many bytes as a reduce-scatter.
    """
    parts = lax.all_to_all(gradient, RANKS, axis, axis, tiled=True)
    ranks = lax.axis_size(RANKS)
    before, size, after = parts.shape[:axis], parts.shape[axis], parts.shape[axis + 1 :]
    return (parts.reshape(*before, ranks, size // ranks, *after).sum(axis),)


gather_by_gloo.defvjp(keep_nothing, sum_own_part)


class GatheredWeights(Mapping[str, Array]):
    """Sharded weights by name; reading a weight all-gathers it."""

    def __init__(self, weights: Arrays, axes: SplitAxes, gather: Gather) -> None:
        self._weights = weights
        self._axes = axes
        self._gather = gather

    def __getitem__(self, name: str) -> Array:
        axis = self._axes[name]
        if axis is None:
            return self._weights[name]
        return checkpoint_name(self._gather(self._weights[name], axis), GATHERED)

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)


def gather_again(function: Any) -> Any:
    """Wrap `function` so that its backward pass gathers weights again instead of keeping them."""
    keep = jax.checkpoint_policies.save_anything_except_these_names(GATHERED)
    return jax.checkpoint(function, policy=keep)
