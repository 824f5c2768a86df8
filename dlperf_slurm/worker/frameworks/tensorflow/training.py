"""Gradients -> the operations that update the variables, with loss scale and averaging."""

from typing import Any, Callable, List, NamedTuple, Sequence, Union

import numpy
import tensorflow as tf

from dlperf_slurm.worker import horovod
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.frameworks.tensorflow.layers import make_variable
from dlperf_slurm.worker.update_rule import ADAMW, Rule

Gradients = List[tf.Tensor]
# gradients -> an operation (in a graph), or None (in a tf.function)
Update = Callable[[Gradients], Any]

# Gradients are all-reduced in packs of this size, those of the last layers first, while others are
# still being computed.
BYTES_PER_PACK = 32 * 2**20


class Exchange(NamedTuple):
    """A step's update, and the means of gradients over the ranks, which verification reads."""

    means: Gradients
    step: tf.Operation


# The optimizers are TensorFlow's fused operations, not those of tf.train or Keras. tf.train has no
# weight decay. That of Keras is decoupled in SGD too, and applies to biases and normalization
# weights unless these are excluded by name. The Adam of both adds epsilon to the root of the
# uncorrected second moment. Optimizer state is on its variable's device.
class Momentum:
    """SGD with or without momentum; weight decay is added to gradients of matrices and kernels."""

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
        # velocity = momentum * velocity + gradient, without the learning rate
        return tf.raw_ops.ResourceApplyMomentum(
            var=variable.handle,
            accum=self._velocities[index].handle,
            lr=rate,
            grad=gradient,
            momentum=self._rule.momentum,
        )


class AdamW:
    """Adam with bias correction and decoupled weight decay of matrices and kernels."""

    def __init__(self, rule: Rule, variables: Sequence[tf.Variable]) -> None:
        self.learning_rate = make_variable([], rule.learning_rate, trainable=False)
        self._rule = rule
        self._variables = variables
        self._first_moments = make_slots(variables)
        self._second_moments = make_slots(variables)
        self._step = make_variable([], dtype=tf.float64, trainable=False)

    def apply(self, gradients: Sequence[tf.Tensor]) -> List[tf.Operation]:
        step = self._step.assign_add(1.0)
        # In float64: near 1, powers of beta2 would have few correct digits in float32. From the
        # float32 betas, because these update the moments.
        beta1, beta2 = (numpy.float32(beta) for beta in self._rule.betas)
        first = 1 - tf.pow(tf.constant(beta1, tf.float64), step)
        second = tf.sqrt(1 - tf.pow(tf.constant(beta2, tf.float64), step))
        # ResourceApplyAdam adds epsilon to the root of the uncorrected moment. So its learning rate
        # and epsilon contain both bias corrections, and powers of 0 switch off its own correction.
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
    """Return the operations that subtract `decay` * weight from a weight; [] for a vector.

    They run when the forward pass has read the weight, as its gradient shows.
    """
    if variable.shape.rank < 2:
        return []
    with tf.device(variable.device), tf.control_dependencies([gradient]):
        return [variable.assign_sub(decay * variable.read_value(), read_value=False)]


def make_slots(variables: Sequence[tf.Variable]) -> List[tf.Variable]:
    """Create optimizer state: a zeroed variable for each variable, on the same device."""
    slots = []
    for variable in variables:
        with tf.device(variable.device):
            slots.append(make_variable(variable.shape.as_list(), trainable=False))
    return slots


class ConstantLossScale:
    """Constant loss scale without an overflow check; a scale of 1 costs nothing."""

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
    """Multiply each gradient by a factor, on the gradient's device."""
    products = []
    for gradient in gradients:
        with tf.device(gradient.device):
            products.append(gradient * factor)
    return products


def join_horovod(rank_info: RankInfo) -> Callable[[Gradients], Gradients]:
    """Join the ranks by Horovod and return the function that averages gradients over the ranks.

    Horovod fuses the all-reduces. Raises RuntimeError if Horovod sees other ranks than MPI.
    """
    import horovod.tensorflow as hvd

    horovod.join_horovod(hvd, rank_info)

    def average(gradients: Gradients) -> Gradients:
        return [hvd.allreduce(gradient, op=hvd.Average) for gradient in gradients]

    return average
