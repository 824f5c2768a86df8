"""A forward pass and an update rule -> functions compiled over a mesh with one device per rank."""

import math
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple, Union

import jax
from jax import Array, lax
from jax import numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks.jax.device import RANKS, Arrays
from dlperf_slurm.worker.frameworks.jax.forward import (
    Forward,
    State,
    are_finite,
    compile_over_ranks,
    make_state_specs,
    select,
)
from dlperf_slurm.worker.frameworks.jax.sharding import (
    SplitAxes,
    gather_again,
    is_sharded,
    make_shardings,
    make_specs,
)
from dlperf_slurm.worker.update_rule import ADAMW, Rule
from dlperf_slurm.worker.work import Work


# JAX itself has no optimizers. Weight decay applies to matrices and kernels, not to biases and
# normalization weights, which are the parameters with one dimension. Optimizer states are trees of
# arrays of the weights' type; the arithmetic is in float32.
@dataclass(frozen=True)
class Momentum:
    """SGD with momentum: velocity = momentum * velocity + gradient + weight_decay * weight.

    The learning rate multiplies the velocity, and is not part of it.
    """

    rule: Rule

    def initialize(self, weights: Arrays) -> Arrays:
        """Return the optimizer state: a zero velocity per weight, or {} without momentum."""
        return jax.tree.map(jnp.zeros_like, weights) if self.rule.momentum else {}

    def make_specs(self, weights: Dict[str, P]) -> Dict[str, P]:
        return weights if self.rule.momentum else {}

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
    """Adam with decoupled weight decay; epsilon is added to the corrected second moment's root."""

    rule: Rule

    def initialize(self, weights: Arrays) -> Dict[str, Any]:
        first, second = (jax.tree.map(jnp.zeros_like, weights) for _ in self.rule.betas)
        return {"first": first, "second": second, "step": jnp.zeros((), jnp.int32)}

    def make_specs(self, weights: Dict[str, P]) -> Dict[str, Any]:
        return {"first": weights, "second": weights, "step": P()}

    def update(
        self, weights: Arrays, state: Dict[str, Any], gradients: Arrays, learning_rate: Array
    ) -> Tuple[Arrays, Dict[str, Any]]:
        step = state["step"] + 1
        # 1 - beta**step, of which float32 would keep only 4 digits in the first steps
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


def clip_gradients(gradients: Arrays, largest_norm: Optional[float], axes: SplitAxes) -> Arrays:
    """Scale all gradients so that their global norm is at most `largest_norm`, unless it is None.

    `axes` says which gradients are sharded: their squares are summed over the ranks for the norm.
    """
    if largest_norm is None:
        return gradients
    # sums of squares: of whole gradients (False), of sharded ones (True)
    squares = {False: jnp.zeros(()), True: jnp.zeros(())}
    for name, values in gradients.items():
        # not a matrix product, which may be in TF32
        squares[axes[name] is not None] += jnp.square(to_float32(values)).sum()
    total = squares[False]
    if any(axis is not None for axis in axes.values()):
        total = total + lax.psum(squares[True], RANKS)
    scale = jnp.minimum(1.0, largest_norm / jnp.sqrt(total))
    return {name: (gradient * scale) for name, gradient in gradients.items()}


class Training:
    """Jitted functions of state and batch: `step`, and its parts `accumulate` and `backpropagate`.

    `accumulate` runs one of a step's earlier batches. `backpropagate` runs the last batch and
    returns its losses, the running statistics and the step's gradients.
    """

    def __init__(
        self, case: Case, work: Work, forward: Forward, mesh: Mesh, axes: SplitAxes
    ) -> None:
        self._forward = forward
        self._optimizer = make_optimizer(work.rule)
        self._split_axes = axes
        self._is_sharded = is_sharded(case)
        self._world_size = case.world_size
        self._clip_global_norm = work.largest_norm
        self._batches_per_step = case.axes.gradient_accumulation
        self._constant_scale = float(case.axes.constant_loss_scale or 1)
        # XLA merges all gradients into one all-reduce, but its CPU client passes them to Gloo one
        # by one, each with milliseconds of latency, small ones too (jaxlib 0.10). So they are
        # concatenated here.
        self._is_flattened = case.device == "cpu" and case.world_size > 1

        weights = make_specs(axes)
        optimizer = self._optimizer.make_specs(weights)
        state = make_state_specs(weights, optimizer)
        in_specs = (state, P(RANKS))
        # donated: the new state reuses the old one's memory
        self.step = compile_over_ranks(
            self._step, mesh, in_specs, (state, P(RANKS)), donate_argnums=0
        )
        self.accumulate = compile_over_ranks(
            self._accumulate, mesh, in_specs, (state, P(RANKS)), donate_argnums=0
        )
        self.backpropagate = compile_over_ranks(
            self._backpropagate, mesh, in_specs, (P(RANKS), P(RANKS), weights)
        )
        self.initialize_optimizer = jax.jit(
            self._optimizer.initialize, out_shardings=make_shardings(mesh, optimizer)
        )
        self.initialize_accumulated = compile_over_ranks(make_zeros, mesh, (weights,), P(RANKS))

    def _step(self, state: State, batch: Arrays) -> Tuple[State, Array]:
        losses, statistics, gradients = self._backpropagate(state, batch)
        scale = state.loss_scale
        clipped = clip_gradients(gradients, self._clip_global_norm, self._split_axes)
        weights, optimizer = self._optimizer.update(
            state.weights, state.optimizer, clipped, state.learning_rate
        )
        if scale is not None:
            is_finite = are_finite(gradients)
            if self._is_sharded:
                is_finite = lax.pmin(is_finite.astype(jnp.int32), RANKS) > 0
            weights = select(is_finite, weights, state.weights)
            optimizer = select(is_finite, optimizer, state.optimizer)
            scale = scale.update(is_finite)
        return State(
            weights=weights,
            statistics=statistics,
            keys=advance(state.keys),
            optimizer=optimizer,
            learning_rate=state.learning_rate,
            loss_scale=scale,
            accumulated=jax.tree.map(jnp.zeros_like, state.accumulated),
        ), losses

    def _accumulate(self, state: State, batch: Arrays) -> Tuple[State, Array]:
        losses, statistics, gradients = self._differentiate(state, batch)
        return state._replace(
            statistics=statistics, keys=advance(state.keys), accumulated=add_axis(gradients)
        ), losses

    def _backpropagate(self, state: State, batch: Arrays) -> Tuple[Array, Arrays, Arrays]:
        """Return losses and statistics per rank, and gradients averaged over batches and ranks.

        The gradients are without the loss scale.
        """
        losses, statistics, gradients = self._differentiate(state, batch)
        gradients = self._average(gradients)
        divisor = self._find_scale(state) * self._batches_per_step
        if isinstance(divisor, float) and divisor == 1.0:
            return losses, statistics, gradients
        return (
            losses,
            statistics,
            {name: to_float32(values) / divisor for name, values in gradients.items()},
        )

    def _differentiate(self, state: State, batch: Arrays) -> Tuple[Array, Arrays, Arrays]:
        """Return this rank's loss, running statistics, and scaled gradients, for a batch.

        The gradients are summed with those of the step's earlier batches, and sharded ones also
        over the ranks.
        """
        scale = self._find_scale(state)

        def compute_scaled_loss(weights: Arrays) -> Tuple[Array, Tuple[Array, Arrays]]:
            logits, statistics = self._forward.compute_logits(
                weights, state, batch, is_training=True
            )
            loss = self._forward.compute_loss(logits, batch)
            return loss * scale, (loss, statistics)

        # Weights are cast to per-rank ("varying") values, so that their gradients are per rank too:
        # gradients of replicated weights would come summed over the ranks (jax.shard_map,
        # "automatic differentiation").
        weights = {
            name: lax.pcast(values, RANKS, to="varying")
            if self._split_axes[name] is None
            else values
            for name, values in state.weights.items()
        }
        if self._is_sharded:
            compute_scaled_loss = gather_again(compute_scaled_loss)
        gradients, (loss, statistics) = jax.grad(compute_scaled_loss, has_aux=True)(weights)
        if state.accumulated is not None:
            gradients = {
                name: values + state.accumulated[name][0] for name, values in gradients.items()
            }
        return loss[None], add_axis(statistics), gradients

    def _find_scale(self, state: State) -> Any:
        return self._constant_scale if state.loss_scale is None else state.loss_scale.scale

    def _average(self, gradients: Arrays) -> Arrays:
        """Return the mean of the gradients over the ranks; sharded gradients are summed already."""
        parts = {
            name: values / self._world_size
            for name, values in gradients.items()
            if self._split_axes[name] is not None
        }
        whole = {name: values for name, values in gradients.items() if name not in parts}
        if not self._is_flattened:
            whole = lax.pmean(whole, RANKS)
        elif whole:
            flat, restore = ravel_pytree(whole)
            whole = restore(lax.pmean(flat, RANKS))
        return {name: parts[name] if name in parts else whole[name] for name in gradients}


def add_axis(arrays: Arrays) -> Arrays:
    return {name: values[None] for name, values in arrays.items()}


def make_zeros(weights: Arrays) -> Arrays:
    return add_axis(jax.tree.map(jnp.zeros_like, weights))


def advance(keys: Array) -> Array:
    """Return the dropout keys for the next batch, one per rank, derived from the last `keys`."""
    return jax.vmap(jax.random.split)(keys)[:, 0]
