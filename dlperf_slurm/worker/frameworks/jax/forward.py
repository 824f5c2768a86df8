"""A model, its loss and a loss scale -> a forward pass in the case's precision, and evaluation."""

import os
from functools import partial
from typing import Any, List, NamedTuple, Optional, Set, Tuple

import jax
import numpy
from jax import Array
from jax import numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.determinism import find_lack_of_xla
from dlperf_slurm.worker.frameworks.jax.device import RANKS, Arrays
from dlperf_slurm.worker.frameworks.jax.layers import (
    CUDNN,
    LAYOUTS,
    XLA,
    Scope,
    attend_evenly,
)
from dlperf_slurm.worker.frameworks.jax.sharding import (
    GatheredWeights,
    SplitAxes,
    choose_gather,
    is_sharded,
)
from dlperf_slurm.worker.work import UNFUSED, Work

# constants of the dynamic loss scale, those of PyTorch's GradScaler; JAX has none of its own
INITIAL_SCALE = 2.0**16
GROWTH_FACTOR = 2.0
BACKOFF_FACTOR = 0.5
GROWTH_INTERVAL = 2000
PURE_TYPES = {"bf16": jnp.bfloat16, "fp16": jnp.float16}
COMPUTE_TYPES = {"amp-bf16": jnp.bfloat16, "amp-fp16": jnp.float16, **PURE_TYPES}


class LossScale(NamedTuple):
    """The dynamic loss scale, and the number of steps in a row with finite gradients."""

    scale: Array
    finite_steps: Array

    def update(self, is_finite: Array) -> "LossScale":
        finite_steps = jnp.where(is_finite, self.finite_steps + 1, 0)
        is_grown = finite_steps == GROWTH_INTERVAL
        factor = jnp.where(is_finite, jnp.where(is_grown, GROWTH_FACTOR, 1.0), BACKOFF_FACTOR)
        return LossScale(self.scale * factor, jnp.where(is_grown, 0, finite_steps))


def make_loss_scale(case: Case) -> Optional[LossScale]:
    """Return the initial dynamic loss scale, in host memory; None if it is constant or not used."""
    if case.axes.precision != "amp-fp16" or case.axes.constant_loss_scale:
        return None
    return LossScale(numpy.float32(INITIAL_SCALE), numpy.int32(0))


def are_finite(gradients: Any) -> Array:
    leaves = jax.tree.leaves(gradients)
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()


def select(is_finite: Array, new: Any, old: Any) -> Any:
    """Return the tree `new` if the gradients are finite, else `old`: the step is skipped."""
    return jax.tree.map(lambda one, other: jnp.where(is_finite, one, other), new, old)


class State(NamedTuple):
    """What a step reads and updates; a per-rank array has a leading axis of ranks.

    A forward pass needs the first three fields. `accumulated` holds the sum of the scaled gradients
    of a step's earlier batches.
    """

    weights: Arrays
    statistics: Arrays
    keys: Array
    optimizer: Any = None
    learning_rate: Optional[Array] = None
    loss_scale: Optional[LossScale] = None
    accumulated: Optional[Arrays] = None

    def take_forward(self) -> "State":
        return State(self.weights, self.statistics, self.keys)


def make_state_specs(weights: Any, optimizer: Any) -> State:
    """Return a State of JAX PartitionSpecs: the given ones for weights and optimizer state.

    Those of the other fields are for replicated arrays, or for arrays with a part per rank.
    """
    return State(weights, P(RANKS), P(RANKS), optimizer, P(), P(), P(RANKS))


class Forward:
    """The forward pass of a case: logits and loss from weights and this rank's batch."""

    def __init__(self, case: Case, work: Work, axes: SplitAxes) -> None:
        self._work = work
        self._split_axes = axes if is_sharded(case) else None
        self._is_checkpointed = case.axes.activation_checkpointing
        self.model = work.builder.Model(work.definition)
        self.compute_type = COMPUTE_TYPES.get(case.axes.precision, jnp.float32)
        self._gather = choose_gather(case)
        self._layout = LAYOUTS[case.axes.memory_format]
        self._attention, self._lack_of_cudnn = choose_attention(case, work, self.compute_type)
        self._attention_taken: Set[str] = set()

    def describe_attention(self) -> str:
        """Return what computes attention, such as "cuDNN"; '' for a model without attention.

        If `choose_attention` has given a reason not to use cuDNN, the text has the reason too.
        """
        names = {XLA: f"{UNFUSED}{self._lack_of_cudnn}", CUDNN: "cuDNN"}
        found = " and ".join(sorted(names[each] for each in self._attention_taken))
        return self._work.describe_attention(found or UNFUSED)

    def compute_logits(
        self, weights: Arrays, state: State, batch: Arrays, is_training: bool
    ) -> Tuple[Any, Arrays]:
        """Return a batch's logits, and the updated running statistics by name, {} in evaluation.

        `state` gives statistics and dropout keys only; the weights are `weights`, as gradients are
        taken with respect to these.
        """
        scope = self.make_scope(weights, state, is_training)
        logits = self.model(scope, *self._work.take_inputs(batch))
        return logits, scope.new_statistics

    def make_scope(self, weights: Arrays, state: State, is_training: bool) -> Scope:
        """Return the Scope from which the layers read weights and settings in one forward pass.

        `state` gives this rank's statistics and dropout key only; the weights are `weights`.
        """
        axes = self._split_axes
        return Scope(
            weights=weights if axes is None else GatheredWeights(weights, axes, self._gather),
            statistics={name: values[0] for name, values in state.statistics.items()},
            key=state.keys[0],
            is_training=is_training,
            compute_type=self.compute_type,
            layout=self._layout,
            is_checkpointed=self._is_checkpointed,
            attention=self._attention,
            attention_taken=self._attention_taken,
        )

    def compute_loss(self, logits: Any, batch: Arrays) -> Array:
        return self._work.compute_loss(logits, batch)


def choose_attention(case: Case, work: Work, compute_type: Any) -> Tuple[str, str]:
    """Return the implementation of attention to use, XLA or CUDNN, and why it is not cuDNN, or ''.

    cuDNN is used for 16-bit types on a GPU that has the kernels, unless XLA must train with
    deterministic ones. To find out, attention alone is compiled, for one head of one sample, so
    that a GPU or length without a kernel is noticed before the model is compiled. The reason is
    text to append: it begins with ", because".
    """
    if case.device != "cuda" or compute_type == jnp.float32 or not work.has_attention:
        return XLA, ""
    lack = find_lack_of_xla(os.environ) if case.axes.mode == TRAIN else ""
    if lack:
        return XLA, f", because {lack}"
    definition = work.definition
    shape = (1, definition.sequence_length, 1, definition.head_size)
    arrays = [jax.ShapeDtypeStruct(shape, compute_type)] * 3
    probes: List[Any] = [partial(sum_attention, jax.nn.dot_product_attention)]
    if case.axes.mode == TRAIN:
        probes.append(jax.grad(partial(sum_attention, attend_evenly), (0, 1, 2)))
    try:
        for probe in probes:
            jax.jit(probe).lower(*arrays).compile()
    except Exception as error:  # JAX, XLA and cuDNN raise various types
        (reason, *_) = str(error).splitlines() or [type(error).__name__]
        return XLA, f", because cuDNN attention fails: {reason[:100]}"
    return CUDNN, ""


def sum_attention(attend: Any, query: Array, key: Array, value: Array) -> Array:
    """Run cuDNN's non-causal and causal attention, which fails if it lacks one of the kernels.

    `attend` is jax.nn.dot_product_attention or `attend_evenly`. Returns the sum over both results,
    float32 [], of which to take the gradient.
    """
    both = (
        attend(query, key, value, is_causal=each, implementation=CUDNN) for each in (False, True)
    )
    return sum(each.sum(dtype=jnp.float32) for each in both)


class Evaluation:
    """Jitted functions for evaluation: `infer` (state, batch -> logits) and `compute_losses`.

    Batch normalization uses its running statistics and there is no dropout. Each rank has logits
    and a loss of its own.
    """

    def __init__(self, forward: Forward, mesh: Mesh, specs: State) -> None:
        self._forward = forward
        self.infer = compile_over_ranks(self._infer, mesh, (specs, P(RANKS)), P(RANKS))
        self.compute_losses = compile_over_ranks(
            self._compute_losses, mesh, (P(RANKS), P(RANKS)), P(RANKS)
        )

    def _infer(self, state: State, batch: Arrays) -> Any:
        logits, _ = self._forward.compute_logits(state.weights, state, batch, is_training=False)
        return logits

    def _compute_losses(self, logits: Any, batch: Arrays) -> Array:
        return self._forward.compute_loss(logits, batch)[None]


def compile_over_ranks(
    function: Any, mesh: Mesh, in_specs: Any, out_specs: Any, **options: Any
) -> Any:
    """Map a function of one rank's data over the mesh (shard_map), and jit it with `options`."""
    mapped = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    return jax.jit(mapped, **options)
