"""Gradients -> new weights, in PyTorch's forms; JAX itself has no optimizers.

Matrices and kernels decay, biases and normalizations do not. The latter are the parameters with
one dimension. States are trees of arrays.
"""

import math
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

import jax
from jax import Array
from jax import numpy as jnp

Arrays = Dict[str, Array]


@dataclass(frozen=True)
class Momentum:
    """velocity = momentum * velocity + gradient + decay; the learning rate is not in it."""

    learning_rate: float
    momentum: float
    weight_decay: float

    def initialize(self, weights: Arrays) -> Arrays:
        return jax.tree.map(jnp.zeros_like, weights)

    def update(self, weights: Arrays, velocity: Arrays, gradients: Arrays) -> Tuple[Arrays, Arrays]:
        new_weights, new_velocity = {}, {}
        for name, weight in weights.items():
            gradient = gradients[name]
            if weight.ndim > 1:
                gradient = gradient + self.weight_decay * weight
            new_velocity[name] = self.momentum * velocity[name] + gradient
            new_weights[name] = weight - self.learning_rate * new_velocity[name]
        return new_weights, new_velocity


@dataclass(frozen=True)
class AdamW:
    """Decoupled decay; epsilon is added to the root of the corrected second moment."""

    learning_rate: float
    betas: Tuple[float, float]
    epsilon: float
    weight_decay: float

    def initialize(self, weights: Arrays) -> Dict[str, Any]:
        first, second = (jax.tree.map(jnp.zeros_like, weights) for _ in self.betas)
        return {"first": first, "second": second, "step": jnp.zeros((), jnp.int32)}

    def update(
        self, weights: Arrays, state: Dict[str, Any], gradients: Arrays
    ) -> Tuple[Arrays, Dict[str, Any]]:
        step = state["step"] + 1
        # 1 - beta**step, which float32 would round to 4 digits in the first steps
        corrections = [-jnp.expm1(step * math.log(beta)) for beta in self.betas]
        new_weights, new_first, new_second = {}, {}, {}
        for name, weight in weights.items():
            first, second = (
                beta * state[moment][name] + (1 - beta) * power
                for moment, beta, power in zip(
                    ("first", "second"),
                    self.betas,
                    (gradients[name], jnp.square(gradients[name])),
                )
            )
            decay = self.learning_rate * self.weight_decay if weight.ndim > 1 else 0.0
            root = jnp.sqrt(second / corrections[1]) + self.epsilon
            update = self.learning_rate * (first / corrections[0]) / root
            new_weights[name] = weight * (1 - decay) - update
            new_first[name], new_second[name] = first, second
        return new_weights, {"first": new_first, "second": new_second, "step": step}


def clip_gradients(gradients: Arrays, largest_norm: Optional[float]) -> Arrays:
    """All scaled alike to have `largest_norm` together, if they have more."""
    if largest_norm is None:
        return gradients
    norm = jnp.sqrt(sum(jnp.vdot(gradient, gradient) for gradient in gradients.values()))
    scale = jnp.minimum(1.0, largest_norm / norm)
    return {name: gradient * scale for name, gradient in gradients.items()}
