"""A case on this rank -> a static graph of training or inference, and what verification fetches."""

from typing import Any, Dict, List, NamedTuple, Sequence, Union

import tensorflow as tf

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks.tensorflow.layers import (
    NamedVariable,
    find_variables,
    make_variable,
)
from dlperf_slurm.worker.frameworks.tensorflow.training import make_optimizer
from dlperf_slurm.worker.frameworks.tensorflow1.parameter_servers import ParameterServers
from dlperf_slurm.worker.frameworks.tensorflow1.training import (
    Distribution,
    accumulate_gradients,
    make_loss_scale,
)
from dlperf_slurm.worker.work import Work

COMPUTE_TYPES = {"amp-fp16": tf.float16}


class Forward(NamedTuple):
    """A model and its batch.

    The batch is in variables, because constants could be folded into the model.
    """

    model: Any
    parameters: Dict[str, NamedVariable]
    batch: Dict[str, tf.Variable]
    work: Work

    def read_inputs(self) -> Dict[str, tf.Tensor]:
        return {name: tf.convert_to_tensor(self.batch[name]) for name in self.work.inputs}

    def compute_logits(self, inputs: Dict[str, tf.Tensor], training: bool) -> Any:
        return self.model(*inputs.values(), training=training)

    def compute_loss(self, logits: Any) -> tf.Tensor:
        return self.work.compute_loss(logits, self.batch)


class Evaluation(NamedTuple):
    """The forward pass in evaluation mode: `inputs` -> `logits`, and the `loss` of the batch.

    Values other than the batch may be fed to `inputs`.
    """

    inputs: Dict[str, tf.Tensor]
    logits: Any
    loss: tf.Tensor


class Training(NamedTuple):
    """The operations of a training step.

    `moved` updates what a training pass changes beside the weights: loss and running statistics.
    `gradients` and `step` include the batches for which `accumulate` was run before; `clear`
    forgets those.
    """

    loss: tf.Variable
    evaluation: Evaluation
    loss_scale: Any
    learning_rate: tf.Variable
    gradients: List[tf.Tensor]
    moved: tf.Operation
    clear: tf.Operation
    accumulate: tf.Operation
    step: tf.Operation


class Inference(NamedTuple):
    """The operations of inference; `loss` is that of the logits that the last `infer` left."""

    loss: tf.Tensor
    evaluation: Evaluation
    infer: tf.Operation


def build_forward(case: Case, work: Work, batch: Dict[str, Any]) -> Forward:
    """Build the model, and variables for a batch, in the default graph on the default device.

    `batch`, name -> array, gives the names, shapes and types of the latter.
    """
    definition = work.definition
    model = work.builder.Model(definition, COMPUTE_TYPES.get(case.axes.precision, tf.float32))
    parameters = find_variables(model, definition.list_parameters())
    inputs = {
        name: make_variable(values.shape, dtype=tf.as_dtype(values.dtype), trainable=False)
        for name, values in batch.items()
    }
    return Forward(model, parameters, inputs, work)


def build_evaluation(forward: Forward) -> Evaluation:
    """Build inputs, logits and loss of a forward pass in evaluation mode, on the batch."""
    inputs = forward.read_inputs()
    logits = forward.compute_logits(inputs, training=False)
    return Evaluation(inputs, logits, forward.compute_loss(logits))


def build_training(
    case: Case, forward: Forward, distribution: Union[Distribution, ParameterServers]
) -> Training:
    """Build the training step: loss, accumulated gradients, their exchange and the update."""
    work = forward.work
    variables = [variable for variable, _ in forward.parameters.values()]
    optimizer = make_optimizer(work.rule, variables)
    with tf.device(distribution.shared_device):
        loss_scale = make_loss_scale(case)

    def clip_and_apply(gradients: Sequence[tf.Tensor]) -> tf.Operation:
        if work.largest_norm is not None:
            # clips exactly to the norm; PyTorch adds 1e-6 to the divisor
            gradients, _ = tf.clip_by_global_norm(gradients, work.largest_norm)
        return tf.group(optimizer.apply(gradients))

    loss = forward.compute_loss(forward.compute_logits(forward.read_inputs(), training=True))
    part = loss if case.axes.gradient_accumulation == 1 else loss / case.axes.gradient_accumulation
    own = accumulate_gradients(
        tf.gradients(loss_scale.scale(part), variables), case.axes.gradient_accumulation
    )
    means, step = distribution.exchange(
        variables, own.gradients, lambda means: loss_scale.apply(means, clip_and_apply)
    )
    last_loss = make_variable([], float("nan"), trainable=False)
    updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
    moved = tf.group(last_loss.assign(loss), *updates)
    return Training(
        loss=last_loss,
        evaluation=build_evaluation(forward),
        loss_scale=loss_scale,
        learning_rate=optimizer.learning_rate,
        gradients=loss_scale.unscale(means),
        moved=moved,
        clear=own.clear,
        accumulate=tf.group(moved, own.keep),
        step=tf.group(moved, own.clear, step),
    )


def build_inference(forward: Forward) -> Inference:
    """Build inference, which assigns the logits to variables so that they must be computed.

    XLA drops what nothing outside of its cluster uses, and fetching the logits would copy them.
    """
    evaluation = build_evaluation(forward)
    logits = evaluation.logits
    last_logits = tf.nest.map_structure(
        lambda values: make_variable(values.shape, dtype=values.dtype, trainable=False), logits
    )
    assigned = tf.nest.map_structure(lambda last, new: last.assign(new), last_logits, logits)
    return Inference(
        loss=forward.compute_loss(tf.nest.map_structure(tf.convert_to_tensor, last_logits)),
        evaluation=evaluation,
        infer=tf.group(*tf.nest.flatten(assigned)),
    )
