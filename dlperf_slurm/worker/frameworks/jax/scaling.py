"""The loss scale of a case: dynamic by the rules of PyTorch's GradScaler, or a constant.

JAX itself has none.
"""

from typing import Any, NamedTuple, Optional

import jax
import numpy
from jax import Array
from jax import numpy as jnp

from dlperf_slurm.contract.case import Case

INITIAL_SCALE = 2.0**16
GROWTH_FACTOR = 2.0
BACKOFF_FACTOR = 0.5
GROWTH_INTERVAL = 2000


class LossScale(NamedTuple):
    """The factor on the loss, and how many steps in a row it led to finite gradients."""

    scale: Array
    finite_steps: Array

    def update(self, is_finite: Array) -> "LossScale":
        finite_steps = jnp.where(is_finite, self.finite_steps + 1, 0)
        is_grown = finite_steps == GROWTH_INTERVAL
        factor = jnp.where(is_finite, jnp.where(is_grown, GROWTH_FACTOR, 1.0), BACKOFF_FACTOR)
        return LossScale(self.scale * factor, jnp.where(is_grown, 0, finite_steps))


def make_loss_scale(case: Case) -> Optional[LossScale]:
    """In host memory; None for a constant scale, or none at all."""
    if case.axes.precision != "amp-fp16" or case.axes.constant_loss_scale:
        return None
    return LossScale(numpy.float32(INITIAL_SCALE), numpy.int32(0))


def are_finite(gradients: Any) -> Array:
    leaves = jax.tree.leaves(gradients)
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()


def select(is_finite: Array, new: Any, old: Any) -> Any:
    """The new tree, or the old one where the step has to be skipped."""
    return jax.tree.map(lambda one, other: jnp.where(is_finite, one, other), new, old)
