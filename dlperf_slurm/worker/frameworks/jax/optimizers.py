"""The update rule of a case -> functions of gradients and weights; JAX itself has no optimizers.

Matrices and kernels decay, biases and normalizations do not. The latter are the parameters with
one dimension. States are trees of arrays of the weights' type; the arithmetic between is float32.
"""

import math
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple, Union

import jax
from jax import Array
from jax import numpy as jnp

from dlperf_slurm.worker.update_rule import ADAMW, Rule

Arrays = Dict[str, Array]


@dataclass(frozen=True)
class Momentum:
    """velocity = momentum * velocity + gradient + decay; the learning rate is not in it."""

    rule: Rule

    def initialize(self, weights: Arrays) -> Arrays:
        """Without momentum there is nothing to keep."""
        return jax.tree.map(jnp.zeros_like, weights) if self.rule.momentum else {}

    def update(
        self, weights: Arrays, velocity: Arrays, gradients: Arrays, learning_rate: Array
    ) -> Tuple[Arrays, Arrays]:
        new_weights, new_velocity = {}, {}
        for name, values in weights.items():
            weight, change = to_float32(values), to_float32(gradients[name])
            if weight.ndim > 1:
                change = change + self.rule.weight_decay * weight
            if self.rule.momentum:
                change = self.rule.momentum * to_float32(velocity[name]) + change
                new_velocity[name] = change.astype(values.dtype)
            new_weights[name] = (weight - learning_rate * change).astype(values.dtype)
        return new_weights, new_velocity


@dataclass(frozen=True)
class AdamW:
    """Decoupled decay; epsilon is added to the root of the corrected second moment."""

    rule: Rule

    def initialize(self, weights: Arrays) -> Dict[str, Any]:
        first, second = (jax.tree.map(jnp.zeros_like, weights) for _ in self.rule.betas)
        return {"first": first, "second": second, "step": jnp.zeros((), jnp.int32)}

    def update(
        self, weights: Arrays, state: Dict[str, Any], gradients: Arrays, learning_rate: Array
    ) -> Tuple[Arrays, Dict[str, Any]]:
        step = state["step"] + 1
        # 1 - beta**step, which float32 would round to 4 digits in the first steps
        corrections = [-jnp.expm1(step * math.log(beta)) for beta in self.rule.betas]
        new_weights, new_first, new_second = {}, {}, {}
        for name, values in weights.items():
            weight, gradient = to_float32(values), to_float32(gradients[name])
            first, second = (
                beta * to_float32(state[moment][name]) + (1 - beta) * power
                for moment, beta, power in zip(
                    ("first", "second"), self.rule.betas, (gradient, jnp.square(gradient))
                )
            )
            change = first / corrections[0]
            change = change / (jnp.sqrt(second / corrections[1]) + self.rule.epsilon)
            if weight.ndim > 1:
                change = change + self.rule.weight_decay * weight
            new_weights[name] = (weight - learning_rate * change).astype(values.dtype)
            new_first[name] = first.astype(values.dtype)
            new_second[name] = second.astype(values.dtype)
        return new_weights, {"first": new_first, "second": new_second, "step": step}


def make_optimizer(rule: Rule) -> Union[Momentum, AdamW]:
    return AdamW(rule) if rule.name == ADAMW else Momentum(rule)


def to_float32(values: Array) -> Array:
    return values.astype(jnp.float32)


def clip_gradients(gradients: Arrays, largest_norm: Optional[float]) -> Arrays:
    """All scaled alike to have `largest_norm` together, if they have more."""
    if largest_norm is None:
        return gradients
    squares = (jnp.vdot(values, values) for values in map(to_float32, gradients.values()))
    scale = jnp.minimum(1.0, largest_norm / jnp.sqrt(sum(squares)))
    return {name: (gradient * scale) for name, gradient in gradients.items()}
