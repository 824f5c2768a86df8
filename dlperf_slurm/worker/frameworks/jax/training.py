"""A forward pass and an optimizer -> compiled functions over a mesh of one device a rank."""

from typing import Any, Tuple

import jax
from jax import Array, lax
from jax import numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks.jax.devices import RANKS
from dlperf_slurm.worker.frameworks.jax.forward import (
    STATE_SPECS,
    Forward,
    State,
    compile_over_ranks,
)
from dlperf_slurm.worker.frameworks.jax.optimizers import (
    Arrays,
    clip_gradients,
    make_optimizer,
    to_float32,
)
from dlperf_slurm.worker.frameworks.jax.scaling import are_finite, select
from dlperf_slurm.worker.update_rule import make_rule


class Training:
    """Jitted functions of state and batch: `step`, and what it consists of.

    `accumulate` is one of a step's earlier batches. `backpropagate` is the last one, as far as its
    losses, statistics and the step's gradients.
    """

    def __init__(self, case: Case, definition: Any, forward: Forward, mesh: Mesh) -> None:
        self._forward = forward
        self._optimizer = make_optimizer(make_rule(case, definition))
        self._clip_global_norm = definition.CLIP_GLOBAL_NORM if case.axes.clip_global_norm else None
        self._batches_per_step = case.axes.gradient_accumulation
        self._constant_scale = float(case.axes.constant_loss_scale or 1)
        # XLA makes one all-reduce of all gradients, which its CPU client hands to Gloo one by one:
        # each then costs milliseconds of waiting, small ones too (jaxlib 0.10).
        self._is_flattened = case.device == "cpu" and case.world_size > 1

        in_specs = (STATE_SPECS, P(RANKS))
        # donated: the new state takes the old one's memory
        self.step = compile_over_ranks(
            self._step, mesh, in_specs, (STATE_SPECS, P(RANKS)), donate_argnums=0
        )
        self.accumulate = compile_over_ranks(
            self._accumulate, mesh, in_specs, (STATE_SPECS, P(RANKS)), donate_argnums=0
        )
        self.backpropagate = compile_over_ranks(
            self._backpropagate, mesh, in_specs, (P(RANKS), P(RANKS), P())
        )
        self.initialize_optimizer = jax.jit(
            self._optimizer.initialize, out_shardings=NamedSharding(mesh, P())
        )
        self.initialize_accumulated = compile_over_ranks(make_zeros, mesh, P(), P(RANKS))

    def _step(self, state: State, batch: Arrays) -> Tuple[State, Array]:
        losses, statistics, gradients = self._backpropagate(state, batch)
        scale = state.loss_scale
        clipped = clip_gradients(gradients, self._clip_global_norm)
        weights, optimizer = self._optimizer.update(
            state.weights, state.optimizer, clipped, state.learning_rate
        )
        if scale is not None:
            is_finite = are_finite(gradients)
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
        """Losses and statistics of each rank, and gradients averaged over the ranks."""
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
        """This rank's scaled gradients, summed with those of the step's earlier batches."""
        scale = self._find_scale(state)

        def compute_scaled_loss(weights: Arrays) -> Tuple[Array, Tuple[Array, Arrays]]:
            logits, statistics = self._forward.compute_logits(
                weights, state, batch, is_training=True
            )
            loss = self._forward.compute_loss(logits, batch)
            return loss * scale, (loss, statistics)

        # As this rank's own, weights have this rank's own gradients: those of replicated weights
        # would come summed over the ranks (jax.shard_map, "automatic differentiation").
        weights = lax.pcast(state.weights, RANKS, to="varying")
        gradients, (loss, statistics) = jax.grad(compute_scaled_loss, has_aux=True)(weights)
        if state.accumulated is not None:
            gradients = {
                name: values + state.accumulated[name][0] for name, values in gradients.items()
            }
        return loss[None], add_axis(statistics), gradients

    def _find_scale(self, state: State) -> Any:
        return self._constant_scale if state.loss_scale is None else state.loss_scale.scale

    def _average(self, gradients: Arrays) -> Arrays:
        """The mean over the ranks."""
        if not self._is_flattened:
            return lax.pmean(gradients, RANKS)
        flat, restore = ravel_pytree(gradients)
        return restore(lax.pmean(flat, RANKS))


def add_axis(arrays: Arrays) -> Arrays:
    return {name: values[None] for name, values in arrays.items()}


def make_zeros(weights: Arrays) -> Arrays:
    return add_axis(jax.tree.map(jnp.zeros_like, weights))


def advance(keys: Array) -> Array:
    """The keys of the next batch's dropout."""
    return jax.vmap(jax.random.split)(keys)[:, 0]
