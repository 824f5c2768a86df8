"""A forward pass and an optimizer -> compiled functions over a mesh of one device a rank."""

from typing import Any, Tuple

import jax
from jax import Array, lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from dlperf_slurm.contract import Case
from dlperf_slurm.worker.frameworks.jax.devices import RANKS
from dlperf_slurm.worker.frameworks.jax.forward import (
    STATE_SPECS,
    Forward,
    State,
    compile_over_ranks,
)
from dlperf_slurm.worker.frameworks.jax.optimizers import Arrays, clip_gradients
from dlperf_slurm.worker.frameworks.jax.scaling import are_finite, select


class Training:
    """`step` and `backpropagate` of a case, as jitted functions of state and batch."""

    def __init__(
        self, case: Case, definition: Any, builder: Any, forward: Forward, mesh: Mesh
    ) -> None:
        self._forward = forward
        self._optimizer = builder.make_optimizer(definition, case.global_batch_size)
        self._clip_global_norm = definition.CLIP_GLOBAL_NORM if case.clip_global_norm else None
        # XLA makes one all-reduce of all gradients, which its CPU client hands to Gloo one by one:
        # each then costs milliseconds of waiting, small ones too (jaxlib 0.10).
        self._is_flattened = case.device == "cpu" and case.world_size > 1

        in_specs = (STATE_SPECS, P(RANKS))
        # donated: the new state takes the old one's memory
        self.step = compile_over_ranks(
            self._step, mesh, in_specs, (STATE_SPECS, P(RANKS)), donate_argnums=0
        )
        self.backpropagate = compile_over_ranks(
            self._backpropagate, mesh, in_specs, (P(RANKS), P(RANKS), P())
        )

    def initialize_optimizer(self, weights: Arrays) -> Any:
        return self._optimizer.initialize(weights)

    def _step(self, state: State, batch: Arrays) -> Tuple[State, Array]:
        losses, statistics, gradients = self._backpropagate(state, batch)
        scale = state.loss_scale
        clipped = clip_gradients(gradients, self._clip_global_norm)
        weights, optimizer = self._optimizer.update(state.weights, state.optimizer, clipped)
        if scale is not None:
            is_finite = are_finite(gradients)
            weights = select(is_finite, weights, state.weights)
            optimizer = select(is_finite, optimizer, state.optimizer)
            scale = scale.update(is_finite)
        keys = jax.vmap(jax.random.split)(state.keys)[:, 0]
        return State(weights, statistics, optimizer, scale, keys), losses

    def _backpropagate(self, state: State, batch: Arrays) -> Tuple[Array, Arrays, Arrays]:
        """Losses and statistics of each rank, and gradients averaged over the ranks."""
        scale = 1.0 if state.loss_scale is None else state.loss_scale.scale

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
        gradients = self._average(gradients)
        if state.loss_scale is not None:
            gradients = {name: gradient / scale for name, gradient in gradients.items()}
        return loss[None], add_axis(statistics), gradients

    def _average(self, gradients: Arrays) -> Arrays:
        """The mean over the ranks."""
        if not self._is_flattened:
            return lax.pmean(gradients, RANKS)
        flat, restore = ravel_pytree(gradients)
        return restore(lax.pmean(flat, RANKS))


def add_axis(arrays: Arrays) -> Arrays:
    return {name: values[None] for name, values in arrays.items()}
