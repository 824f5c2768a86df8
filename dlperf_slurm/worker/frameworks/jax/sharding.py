"""Weights sharded over the ranks -> whole weights where a layer reads them, and back."""

from functools import partial
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import jax
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from dlperf_slurm.contract.axes import SHARDED
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks.jax.device import RANKS, Arrays

# the sharded axis of each weight; None for a weight that every rank has whole
SplitAxes = Mapping[str, Optional[int]]
# a rank's part, its sharded axis, the type to gather it in -> the whole weight
Gather = Callable[[Array, int, Any], Array]
# a gradient of the whole weight, the sharded axis -> this rank's part of the sum over all ranks
SumParts = Callable[[Array, int], Array]


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
    """Return the function that all-gathers a sharded weight, for the case's device.

    It takes (part, sharded axis, type to gather in), and can be differentiated. The gradient is
    summed over all ranks in the weight's own type, whatever type was gathered.
    """
    sum_parts = sum_by_all_to_all if case.device == "cpu" else sum_by_reduce_scatter
    return lambda part, axis, gathered_type: gather(
        part, axis, gathered_type, part.dtype, sum_parts
    )


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3, 4))
def gather(part: Array, axis: int, gathered_type: Any, own_type: Any, sum_parts: SumParts) -> Array:
    """All-gather parts of a weight in `gathered_type`; `sum_parts` sums gradients in `own_type`."""
    return lax.all_gather(part.astype(gathered_type), RANKS, axis=axis, tiled=True)


def keep_nothing(part: Array, *settings: Any) -> Tuple[Array, None]:
    """Return the weight that `gather` returns, and None: its backward pass needs no arrays."""
    return gather(part, *settings), None


def differentiate(
    axis: int, gathered_type: Any, own_type: Any, sum_parts: SumParts, _: None, gradient: Array
) -> Tuple[Array]:
    """Return the gradient of this rank's part from that of the gathered weight, for `gather`."""
    return (sum_parts(gradient.astype(own_type), axis),)


gather.defvjp(keep_nothing, differentiate)


def sum_by_reduce_scatter(gradient: Array, axis: int) -> Array:
    """Sum the gradients of a whole weight over all ranks; return this rank's part along `axis`."""
    return lax.psum_scatter(gradient, RANKS, scatter_dimension=axis, tiled=True)


def sum_by_all_to_all(gradient: Array, axis: int) -> Array:
    """Do the work of `sum_by_reduce_scatter`, with as many bytes sent, where Gloo cannot.

    Gloo's reduce-scatter may overwrite data that it has yet to send: rank 0 then gets wrong values,
    from 64 KiB on (github.com/jax-ml/jax/issues/40830; jaxlib 0.10.2 too).
    """
    parts = lax.all_to_all(gradient, RANKS, axis, axis, tiled=True)
    ranks = lax.axis_size(RANKS)
    before, size, after = parts.shape[:axis], parts.shape[axis], parts.shape[axis + 1 :]
    return parts.reshape(*before, ranks, size // ranks, *after).sum(axis)


class GatheredWeights(Mapping[str, Array]):
    """Sharded weights by name; reading a weight all-gathers it in its own type."""

    def __init__(self, weights: Arrays, axes: SplitAxes, gather: Gather) -> None:
        self._weights = weights
        self._axes = axes
        self._gather = gather

    def __getitem__(self, name: str) -> Array:
        return self.read_as(name, self._weights[name].dtype)

    def read_as(self, name: str, gathered_type: Any) -> Array:
        """Return a whole weight in `gathered_type`, in which the ranks also exchange its parts."""
        part, axis = self._weights[name], self._axes[name]
        return (
            part.astype(gathered_type) if axis is None else self._gather(part, axis, gathered_type)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)


def gather_again(function: Any) -> Any:
    """Wrap `function` so that its backward pass gathers weights again instead of keeping them."""

    def must_keep(_: Any, *__: Any, **parameters: Any) -> bool:
        """Return whether to keep a result for the backward pass: any but a gathered weight."""
        called = parameters.get("call_jaxpr")
        return called is None or all(step.primitive is not lax.all_gather_p for step in called.eqns)

    return jax.checkpoint(function, policy=must_keep)
