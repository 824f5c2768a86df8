"""Gradients -> the operation that updates the variables, by TensorFlow's fused operations.

Not by tf.train's optimizers: they know no weight decay, and AdamOptimizer adds epsilon to the root
of the uncorrected second moment.
"""

from typing import List, Sequence

import numpy
import tensorflow as tf

from dlperf_slurm.worker.frameworks.tensorflow1.layers import make_variable


class Momentum:
    """SGD with momentum; weight decay is added to the gradient of matrices and kernels."""

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        learning_rate: float,
        momentum: float,
        weight_decay: float,
    ) -> None:
        self._variables = variables
        self._velocities = make_slots(variables)
        self._learning_rate = learning_rate
        self._momentum = momentum
        self._weight_decay = weight_decay

    def apply(self, gradients: Sequence[tf.Tensor]) -> tf.Operation:
        updates = []
        for variable, velocity, gradient in zip(self._variables, self._velocities, gradients):
            if variable.shape.ndims > 1:
                gradient = gradient + self._weight_decay * variable
            # velocity = momentum * velocity + gradient, the rate outside of it
            update = tf.raw_ops.ResourceApplyMomentum(
                var=variable.handle,
                accum=velocity.handle,
                lr=self._learning_rate,
                grad=gradient,
                momentum=self._momentum,
            )
            updates.append(update)
        return tf.group(updates)


class AdamW:
    """Adam with bias correction; weight decay is decoupled, of matrices and kernels only."""

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        learning_rate: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        weight_decay: float,
    ) -> None:
        self._variables = variables
        self._first_moments = make_slots(variables)
        self._second_moments = make_slots(variables)
        self._step = make_variable([], dtype=tf.float64, trainable=False)
        self._learning_rate = learning_rate
        self._beta1 = numpy.float32(beta1)
        self._beta2 = numpy.float32(beta2)
        self._epsilon = epsilon
        self._weight_decay = weight_decay

    def apply(self, gradients: Sequence[tf.Tensor]) -> tf.Operation:
        step = self._step.assign_add(1.0)
        # In float64: near 1, powers of beta2 leave float32 few digits of the correction. Of the
        # float32 betas, since the moments are moved by these.
        first = 1 - tf.pow(tf.constant(self._beta1, tf.float64), step)
        second = tf.sqrt(1 - tf.pow(tf.constant(self._beta2, tf.float64), step))
        # The operation adds epsilon to the root of the uncorrected moment, so it is given both
        # corrections in its rate and epsilon, and none in the powers from which it takes its own.
        rate = tf.cast(self._learning_rate * second / first, tf.float32)
        epsilon = tf.cast(self._epsilon * second, tf.float32)
        updates = []
        for variable, m, v, gradient in zip(
            self._variables, self._first_moments, self._second_moments, gradients
        ):
            decays = []
            if variable.shape.ndims > 1:
                # not before the forward pass has read the weight
                with tf.control_dependencies([gradient]):
                    decay = self._learning_rate * self._weight_decay
                    decays = [variable.assign_sub(decay * variable, read_value=False)]
            with tf.control_dependencies(decays):
                update = tf.raw_ops.ResourceApplyAdam(
                    var=variable.handle,
                    m=m.handle,
                    v=v.handle,
                    beta1_power=0.0,
                    beta2_power=0.0,
                    lr=rate,
                    beta1=self._beta1,
                    beta2=self._beta2,
                    epsilon=epsilon,
                    grad=gradient,
                )
            updates.append(update)
        return tf.group(updates)


def make_slots(variables: Sequence[tf.Variable]) -> List[tf.Variable]:
    return [make_variable(variable.shape.as_list(), trainable=False) for variable in variables]
