"""Weights of which each rank keeps a part -> whole ones where a layer reads them, and back."""

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

# what a forward pass calls them; its backward pass gathers them anew
GATHERED = "gathered"
# of each weight, the axis that is split over the ranks; None where all have the whole
SplitAxes = Mapping[str, Optional[int]]
# a rank's part and its split axis -> the whole
Gather = Callable[[Array, int], Array]


def is_sharded(case: Case) -> bool:
    """Whether weights are split over the ranks; a lone one has them all."""
    return case.axes.gradient_sync == SHARDED and case.world_size > 1


def find_split_axis(case: Case, shape: Tuple[int, ...]) -> Optional[int]:
    """The first axis of a matrix or kernel that can be split evenly; vectors stay whole."""
    if not is_sharded(case) or len(shape) < 2:
        return None
    return next((axis for axis, size in enumerate(shape) if size % case.world_size == 0), None)


def make_specs(axes: SplitAxes) -> Dict[str, P]:
    """How the weights lie on the mesh, and all that has their shapes."""
    return {name: P() if axis is None else P(*[None] * axis, RANKS) for name, axis in axes.items()}


def make_shardings(mesh: Mesh, specs: Any) -> Any:
    """A tree of specs on a mesh."""
    return jax.tree.map(
        lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda node: isinstance(node, P)
    )


def choose_gather(case: Case) -> Gather:
    """What joins the parts of all ranks on the case's device; each gets its part of the gradient.

    Its gradient is the sum over the ranks.
    """
    return gather_by_gloo if case.device == "cpu" else gather


def gather(part: Array, axis: int) -> Array:
    """All parts along `axis`; its gradient is reduced and scattered in one."""
    return lax.all_gather(part, RANKS, axis=axis, tiled=True)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def gather_by_gloo(part: Array, axis: int) -> Array:
    """As `gather`, but for how its gradient is summed.

    Gloo's reduce-scatter may overwrite what it has yet to send: rank 0 then gets wrong values, of
    64 KiB and more (github.com/jax-ml/jax/issues/40830; jaxlib 0.10.2 too).
    """
    return gather(part, axis)


def keep_nothing(part: Array, axis: int) -> Tuple[Array, None]:
    return gather(part, axis), None


def sum_own_part(axis: int, _: None, gradient: Array) -> Tuple[Array]:
    """The sum of what all ranks have of this one's part, which takes as many bytes to be sent."""
    parts = lax.all_to_all(gradient, RANKS, axis, axis, tiled=True)
    ranks = lax.axis_size(RANKS)
    before, size, after = parts.shape[:axis], parts.shape[axis], parts.shape[axis + 1 :]
    return (parts.reshape(*before, ranks, size // ranks, *after).sum(axis),)


gather_by_gloo.defvjp(keep_nothing, sum_own_part)


class GatheredWeights(Mapping[str, Array]):
    """A rank's parts, which are whole to who reads them."""

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
    """`function` without its gathered weights among what its backward pass keeps."""
    keep = jax.checkpoint_policies.save_anything_except_these_names(GATHERED)
    return jax.checkpoint(function, policy=keep)
