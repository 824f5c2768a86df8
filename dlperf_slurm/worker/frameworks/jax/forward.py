"""A model, its loss and a loss scale -> a forward pass in the case's precision, and evaluation."""

from typing import Any, NamedTuple, Optional, Set, Tuple

import jax
import numpy
from jax import Array
from jax import numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks.jax.device import RANKS, Arrays
from dlperf_slurm.worker.frameworks.jax.layers import CUDNN, LAYOUTS, XLA, Scope
from dlperf_slurm.worker.frameworks.jax.sharding import (
    GatheredWeights,
    SplitAxes,
    choose_gather,
    is_sharded,
)
from dlperf_slurm.worker.work import WRITTEN_OUT, Work

# of the dynamic loss scale; JAX itself has none, and these are those of PyTorch's GradScaler
INITIAL_SCALE = 2.0**16
GROWTH_FACTOR = 2.0
BACKOFF_FACTOR = 0.5
GROWTH_INTERVAL = 2000
PURE_TYPES = {"bf16": jnp.bfloat16, "fp16": jnp.float16}
COMPUTE_TYPES = {"amp-bf16": jnp.bfloat16, "amp-fp16": jnp.float16, **PURE_TYPES}


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


class State(NamedTuple):
    """What a step reads and changes; what each rank has of its own has an axis of ranks in front.

    A forward pass needs the first three; `accumulated` are the scaled gradients of a step's earlier
    batches.
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
    """What is the same on all ranks, and what each has of its own; the given parts lie as told."""
    return State(weights, P(RANKS), P(RANKS), optimizer, P(), P(), P(RANKS))


class Forward:
    """What a case computes of its weights and this rank's part of the batch."""

    def __init__(self, case: Case, work: Work, axes: SplitAxes) -> None:
        self._work = work
        self._split_axes = axes if is_sharded(case) else None
        self._gather = choose_gather(case)
        self._is_checkpointed = case.axes.activation_checkpointing
        self.model = work.builder.build_model(work.definition)
        self.compute_type = COMPUTE_TYPES.get(case.axes.precision, jnp.float32)
        self._layout = LAYOUTS[case.axes.memory_format]
        self._attention, self._lack_of_cudnn = choose_attention(case, work, self.compute_type)
        self._attention_taken: Set[str] = set()

    def name_attention(self) -> str:
        """What computes it in all that was traced so far; empty for a model without.

        Where cuDNN was asked for and had none, its reason too.
        """
        names = {XLA: f"{WRITTEN_OUT}{self._lack_of_cudnn}", CUDNN: "cuDNN"}
        found = " and ".join(sorted(names[each] for each in self._attention_taken))
        return self._work.name_attention(found or WRITTEN_OUT)

    def compute_logits(
        self, weights: Arrays, state: State, batch: Arrays, is_training: bool
    ) -> Tuple[Any, Arrays]:
        """The logits, and the statistics that a step would leave."""
        scope = self.make_scope(weights, state, is_training)
        logits = self.model(scope, *self._work.take_inputs(batch))
        return logits, scope.new_statistics

    def make_scope(self, weights: Arrays, state: State, is_training: bool) -> Scope:
        """What the layers of one forward pass read."""
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
    """cuDNN's kernels where the case is of 16 bits on a GPU that has them, else XLA's; and why.

    They are compiled alone, of one head of one sample: what lacks them (a GPU, a length) is noticed
    before a model is made of them.
    """
    if case.device != "cuda" or compute_type == jnp.float32 or not work.has_attention:
        return XLA, ""
    definition = work.definition
    shape = (1, definition.sequence_length, 1, definition.head_size)
    arrays = [jax.ShapeDtypeStruct(shape, compute_type)] * 3
    attend = jax.grad(sum_attention, (0, 1, 2)) if case.axes.mode == TRAIN else sum_attention
    try:
        jax.jit(attend).lower(*arrays).compile()
    except Exception as error:  # of whatever kind JAX, XLA and cuDNN have for it
        (reason, *_) = str(error).splitlines() or [type(error).__name__]
        return XLA, f", as cuDNN's is refused: {reason[:100]}"
    return CUDNN, ""


def sum_attention(query: Array, key: Array, value: Array) -> Array:
    """Of attention by cuDNN over all, and over those before: float32 []."""
    both = (
        jax.nn.dot_product_attention(query, key, value, is_causal=each, implementation="cudnn")
        for each in (False, True)
    )
    return sum(each.sum(dtype=jnp.float32) for each in both)


class Evaluation:
    """Jitted functions: `infer` makes logits of state and batch, `compute_losses` losses of them.

    By the running statistics and without dropout; each rank has logits and a loss of its own.
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
    """`function` of what one rank has, as a jitted one of what all ranks have."""
    mapped = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    return jax.jit(mapped, **options)
