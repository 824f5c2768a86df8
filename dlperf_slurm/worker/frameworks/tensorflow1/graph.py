"""A case on this rank -> a static graph of training or of inference, with what proofs fetch."""

from importlib import import_module
from typing import Any, Dict, List, NamedTuple, Sequence

import tensorflow as tf

from dlperf_slurm.contract import Case
from dlperf_slurm.worker.frameworks.tensorflow1.layers import make_variable
from dlperf_slurm.worker.frameworks.tensorflow1.parameters import NamedVariable, find_variables
from dlperf_slurm.worker.frameworks.tensorflow1.scaling import LossScale, NoLossScale

COMPUTE_TYPES = {"amp-fp16": tf.float16}


class Forward(NamedTuple):
    """A model, and the batch that it is for.

    The batch is in variables, as constants might be folded into the model.
    """

    model: Any
    parameters: Dict[str, NamedVariable]
    batch: Dict[str, tf.Variable]
    definition: Any
    builder: Any

    def compute_logits(self, training: bool) -> Any:
        return self.model(*[self.batch[name] for name in self.builder.INPUTS], training=training)

    def compute_loss(self, logits: Any) -> tf.Tensor:
        return self.builder.compute_loss(self.definition, logits, self.batch)


class Training(NamedTuple):
    """`moved` is what a training pass changes beside the weights: loss, running statistics."""

    loss: tf.Variable
    evaluation_loss: tf.Tensor
    loss_scale: Any
    gradients: List[tf.Tensor]
    moved: tf.Operation
    step: tf.Operation


class Inference(NamedTuple):
    """`loss` is that of the logits which the last `infer` left."""

    loss: tf.Tensor
    evaluation_loss: tf.Tensor
    infer: tf.Operation


def build_forward(case: Case, definition: Any, batch: Dict[str, Any]) -> Forward:
    """In the default graph, on the default device; `batch` is for its shapes and types."""
    builder = import_module(f"dlperf_slurm.worker.frameworks.tensorflow1.{case.model}")
    model = builder.build_model(definition, COMPUTE_TYPES.get(case.precision, tf.float32))
    parameters = find_variables(model, definition.list_parameters())
    inputs = {
        name: make_variable(values.shape, dtype=tf.as_dtype(values.dtype), trainable=False)
        for name, values in batch.items()
    }
    return Forward(model, parameters, inputs, definition, builder)


def build_training(case: Case, forward: Forward, average: Any) -> Training:
    definition = forward.definition
    variables = [variable for variable, _ in forward.parameters.values()]
    loss_scale = LossScale() if case.precision == "amp-fp16" else NoLossScale()

    def clip_and_apply(gradients: Sequence[tf.Tensor]) -> tf.Operation:
        if case.clip_global_norm:
            # exactly to the norm; PyTorch adds 1e-6 to what it divides by
            gradients, _ = tf.clip_by_global_norm(gradients, definition.CLIP_GLOBAL_NORM)
        return optimizer.apply(gradients)

    optimizer = forward.builder.make_optimizer(definition, variables, case.global_batch_size)
    loss = forward.compute_loss(forward.compute_logits(training=True))
    scaled_gradients = average(tf.gradients(loss_scale.scale(loss), variables))
    last_loss = make_variable([], float("nan"), trainable=False)
    updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
    moved = tf.group(last_loss.assign(loss), *updates)
    return Training(
        loss=last_loss,
        evaluation_loss=forward.compute_loss(forward.compute_logits(training=False)),
        loss_scale=loss_scale,
        gradients=loss_scale.unscale(scaled_gradients),
        moved=moved,
        step=tf.group(moved, loss_scale.apply(scaled_gradients, clip_and_apply)),
    )


def build_inference(forward: Forward) -> Inference:
    """The logits go to variables, for which they have to be computed.

    Of what nothing takes from its cluster XLA computes nothing; fetched, they would be copied.
    """
    logits = forward.compute_logits(training=False)
    last_logits = tf.nest.map_structure(
        lambda values: make_variable(values.shape, dtype=values.dtype, trainable=False), logits
    )
    assigned = tf.nest.map_structure(lambda last, new: last.assign(new), last_logits, logits)
    return Inference(
        loss=forward.compute_loss(tf.nest.map_structure(tf.convert_to_tensor, last_logits)),
        evaluation_loss=forward.compute_loss(logits),
        infer=tf.group(*tf.nest.flatten(assigned)),
    )
