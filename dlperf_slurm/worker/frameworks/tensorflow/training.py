"""Gradients -> the operations that update the variables, and what scales and averages them."""

from typing import Any, Callable, List, NamedTuple, Sequence, Union

import numpy
import tensorflow as tf

from dlperf_slurm.worker import horovod
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.frameworks.tensorflow.layers import make_variable
from dlperf_slurm.worker.update_rule import ADAMW, Rule

Gradients = List[tf.Tensor]
# of gradients, an operation; or nothing, in a function that does what it says
Update = Callable[[Gradients], Any]

# Gradients travel in packs of this size, the last layers' first while others are being computed.
BYTES_PER_PACK = 32 * 2**20


class Exchange(NamedTuple):
    """The means over the ranks, for proofs, and a step's update by them."""

    means: Gradients
    step: tf.Operation


# The optimizers are TensorFlow's fused operations, not those of tf.train or Keras. Of these, the
# former know no weight decay; the latter's is decoupled in SGD too, and reaches biases and
# normalizations unless excluded by name; and the Adam of both adds epsilon to the root of the
# uncorrected second moment. What belongs to a variable is on the variable's device.
class Momentum:
    """SGD, with momentum or without; weight decay is added to the gradient of matrices, kernels."""

    def __init__(self, rule: Rule, variables: Sequence[tf.Variable]) -> None:
        self.learning_rate = make_variable([], rule.learning_rate, trainable=False)
        self._rule = rule
        self._variables = variables
        self._velocities = make_slots(variables) if rule.momentum else []

    def apply(self, gradients: Sequence[tf.Tensor]) -> List[tf.Operation]:
        rate = self.learning_rate.read_value()
        updates = []
        for index, (variable, gradient) in enumerate(zip(self._variables, gradients)):
            with tf.device(variable.device):
                if variable.shape.rank > 1:
                    gradient = gradient + self._rule.weight_decay * variable.read_value()
                updates.append(self._move(index, variable, gradient, rate))
        return updates

    def _move(
        self, index: int, variable: tf.Variable, gradient: tf.Tensor, rate: tf.Tensor
    ) -> tf.Operation:
        if not self._rule.momentum:
            return tf.raw_ops.ResourceApplyGradientDescent(
                var=variable.handle, alpha=rate, delta=gradient
            )
        # velocity = momentum * velocity + gradient, the rate outside of it
        return tf.raw_ops.ResourceApplyMomentum(
            var=variable.handle,
            accum=self._velocities[index].handle,
            lr=rate,
            grad=gradient,
            momentum=self._rule.momentum,
        )


class AdamW:
    """Adam with bias correction; weight decay is decoupled, of matrices and kernels only."""

    def __init__(self, rule: Rule, variables: Sequence[tf.Variable]) -> None:
        self.learning_rate = make_variable([], rule.learning_rate, trainable=False)
        self._rule = rule
        self._variables = variables
        self._first_moments = make_slots(variables)
        self._second_moments = make_slots(variables)
        self._step = make_variable([], dtype=tf.float64, trainable=False)

    def apply(self, gradients: Sequence[tf.Tensor]) -> List[tf.Operation]:
        step = self._step.assign_add(1.0)
        # In float64: near 1, powers of beta2 leave float32 few digits of the correction. Of the
        # float32 betas, since the moments are moved by these.
        beta1, beta2 = (numpy.float32(beta) for beta in self._rule.betas)
        first = 1 - tf.pow(tf.constant(beta1, tf.float64), step)
        second = tf.sqrt(1 - tf.pow(tf.constant(beta2, tf.float64), step))
        # The operation adds epsilon to the root of the uncorrected moment, so it is given both
        # corrections in its rate and epsilon, and none in the powers from which it takes its own.
        plain_rate = self.learning_rate.read_value()
        rate = tf.cast(tf.cast(plain_rate, tf.float64) * second / first, tf.float32)
        epsilon = tf.cast(self._rule.epsilon * second, tf.float32)
        decay = plain_rate * self._rule.weight_decay
        updates = []
        for variable, m, v, gradient in zip(
            self._variables, self._first_moments, self._second_moments, gradients
        ):
            decays = decay_weight(variable, gradient, decay)
            with tf.device(variable.device), tf.control_dependencies(decays):
                update = tf.raw_ops.ResourceApplyAdam(
                    var=variable.handle,
                    m=m.handle,
                    v=v.handle,
                    beta1_power=0.0,
                    beta2_power=0.0,
                    lr=rate,
                    beta1=beta1,
                    beta2=beta2,
                    epsilon=epsilon,
                    grad=gradient,
                )
            updates.append(update)
        return updates


def make_optimizer(rule: Rule, variables: Sequence[tf.Variable]) -> Union[AdamW, Momentum]:
    return AdamW(rule, variables) if rule.name == ADAMW else Momentum(rule, variables)


def decay_weight(
    variable: tf.Variable, gradient: tf.Tensor, decay: tf.Tensor
) -> List[tf.Operation]:
    """What makes a matrix or kernel smaller, once the forward pass has read it."""
    if variable.shape.rank < 2:
        return []
    with tf.device(variable.device), tf.control_dependencies([gradient]):
        return [variable.assign_sub(decay * variable.read_value(), read_value=False)]


def make_slots(variables: Sequence[tf.Variable]) -> List[tf.Variable]:
    slots = []
    for variable in variables:
        with tf.device(variable.device):
            slots.append(make_variable(variable.shape.as_list(), trainable=False))
    return slots


class ConstantLossScale:
    """The same scale in every step, and no check for an overflow; a scale of 1 costs nothing."""

    def __init__(self, scale: int) -> None:
        self._scale = scale

    def scale(self, loss: tf.Tensor) -> tf.Tensor:
        return loss if self._scale == 1 else loss * self._scale

    def unscale(self, gradients: Sequence[tf.Tensor]) -> Gradients:
        if self._scale == 1:
            return list(gradients)
        return multiply(gradients, 1 / self._scale)

    def apply(self, gradients: Sequence[tf.Tensor], update: Update) -> Any:
        return update(self.unscale(gradients))


def multiply(gradients: Sequence[tf.Tensor], factor: Union[tf.Tensor, float]) -> Gradients:
    """On the device of each."""
    products = []
    for gradient in gradients:
        with tf.device(gradient.device):
            products.append(gradient * factor)
    return products


def join_horovod(placement: Placement) -> Callable[[Gradients], Gradients]:
    """Horovod's own all-reduce of each gradient, which it fuses.

    Raises RuntimeError where it sees other ranks than MPI.
    """
    import horovod.tensorflow as hvd

    horovod.join_horovod(hvd, placement)

    def average(gradients: Gradients) -> Gradients:
        return [hvd.allreduce(gradient, op=hvd.Average) for gradient in gradients]

    return average
