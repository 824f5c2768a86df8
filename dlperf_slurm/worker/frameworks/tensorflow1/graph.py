"""A case on this rank -> one static graph: what a step runs, and what proofs fetch beside it."""

from importlib import import_module
from typing import Any, Dict, List, NamedTuple, Sequence

import tensorflow as tf

from dlperf_slurm.contract import Case
from dlperf_slurm.worker.frameworks.tensorflow1.layers import make_variable
from dlperf_slurm.worker.frameworks.tensorflow1.parameters import NamedVariable, find_variables
from dlperf_slurm.worker.frameworks.tensorflow1.scaling import LossScale, NoLossScale

COMPUTE_TYPES = {"amp-fp16": tf.float16}


class Program(NamedTuple):
    """`moved` is what a training pass changes beside the weights: loss, running statistics."""

    model: tf.Module
    parameters: Dict[str, NamedVariable]
    batch: Dict[str, tf.Variable]
    loss: tf.Variable
    loss_scale: Any
    gradients: List[tf.Tensor]
    moved: tf.Operation
    step: tf.Operation
    evaluation_loss: tf.Tensor


def build_program(case: Case, definition: Any, batch: Dict[str, Any], average: Any) -> Program:
    """In the default graph, on the default device; `batch` is for its shapes and types.

    The batch is in variables, as constants might be folded into the model.
    """
    builder = import_module(f"dlperf_slurm.worker.frameworks.tensorflow1.{case.model}")
    model = builder.build_model(definition, COMPUTE_TYPES.get(case.precision, tf.float32))
    parameters = find_variables(model, definition.list_parameters())
    variables = [variable for variable, _ in parameters.values()]
    inputs = {
        name: make_variable(values.shape, dtype=tf.as_dtype(values.dtype), trainable=False)
        for name, values in batch.items()
    }
    loss_scale = LossScale() if case.precision == "amp-fp16" else NoLossScale()

    def compute_loss(training: bool) -> tf.Tensor:
        logits = model(*[inputs[name] for name in builder.INPUTS], training=training)
        return builder.compute_loss(definition, logits, inputs)

    def clip_and_apply(gradients: Sequence[tf.Tensor]) -> tf.Operation:
        if case.clip_global_norm:
            # exactly to the norm; PyTorch adds 1e-6 to what it divides by
            gradients, _ = tf.clip_by_global_norm(gradients, definition.CLIP_GLOBAL_NORM)
        return optimizer.apply(gradients)

    optimizer = builder.make_optimizer(definition, variables, case.global_batch_size)
    loss = compute_loss(training=True)
    scaled_gradients = average(tf.gradients(loss_scale.scale(loss), variables))
    last_loss = make_variable([], float("nan"), trainable=False)
    updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
    moved = tf.group(last_loss.assign(loss), *updates)
    return Program(
        model=model,
        parameters=parameters,
        batch=inputs,
        loss=last_loss,
        loss_scale=loss_scale,
        gradients=loss_scale.unscale(scaled_gradients),
        moved=moved,
        step=tf.group(moved, loss_scale.apply(scaled_gradients, clip_and_apply)),
        evaluation_loss=compute_loss(training=False),
    )
