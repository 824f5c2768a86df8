"""Weights of which each rank keeps a part -> whole ones where a layer reads them, and back."""

from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

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


class GatheredWeights(Mapping[str, Array]):
    """A rank's parts, which are whole to who reads them; the gradient is that of all ranks' sum."""

    def __init__(self, weights: Arrays, axes: SplitAxes) -> None:
        self._weights = weights
        self._axes = axes

    def __getitem__(self, name: str) -> Array:
        axis = self._axes[name]
        if axis is None:
            return self._weights[name]
        whole = lax.all_gather(self._weights[name], RANKS, axis=axis, tiled=True)
        return checkpoint_name(whole, GATHERED)

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)


def gather_again(function: Any) -> Any:
    """`function` without its gathered weights among what its backward pass keeps."""
    keep = jax.checkpoint_policies.save_anything_except_these_names(GATHERED)
    return jax.checkpoint(function, policy=keep)
