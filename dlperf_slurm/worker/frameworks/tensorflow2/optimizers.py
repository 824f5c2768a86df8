"""Gradients -> updated variables, by TensorFlow's fused operations; loss scaling for float16.

Not by Keras' optimizers: their weight decay is decoupled in SGD too, and reaches biases and
normalizations unless excluded by name; their Adam adds epsilon to the uncorrected second moment.
"""

from typing import Callable, List, Sequence

import numpy
import tensorflow as tf


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

    def apply(self, gradients: Sequence[tf.Tensor]) -> None:
        for variable, velocity, gradient in zip(self._variables, self._velocities, gradients):
            if variable.shape.rank > 1:
                gradient = gradient + self._weight_decay * variable
            # velocity = momentum * velocity + gradient, the rate outside of it
            tf.raw_ops.ResourceApplyMomentum(
                var=variable.handle,
                accum=velocity.handle,
                lr=self._learning_rate,
                grad=gradient,
                momentum=self._momentum,
            )


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
        self._step = tf.Variable(0.0, trainable=False, dtype=tf.float64)
        self._learning_rate = learning_rate
        self._beta1 = numpy.float32(beta1)
        self._beta2 = numpy.float32(beta2)
        self._epsilon = epsilon
        self._weight_decay = weight_decay

    def apply(self, gradients: Sequence[tf.Tensor]) -> None:
        step = self._step.assign_add(1.0)
        # In float64: near 1, powers of beta2 leave float32 few digits of the correction. Of the
        # float32 betas, since the moments are moved by these.
        first = 1 - tf.pow(tf.constant(self._beta1, tf.float64), step)
        second = tf.sqrt(1 - tf.pow(tf.constant(self._beta2, tf.float64), step))
        # The operation adds epsilon to the root of the uncorrected moment, so it is given both
        # corrections in its rate and epsilon, and none in the powers from which it takes its own.
        rate = tf.cast(self._learning_rate * second / first, tf.float32)
        epsilon = tf.cast(self._epsilon * second, tf.float32)
        for variable, m, v, gradient in zip(
            self._variables, self._first_moments, self._second_moments, gradients
        ):
            if variable.shape.rank > 1:
                variable.assign_sub(self._learning_rate * self._weight_decay * variable)
            tf.raw_ops.ResourceApplyAdam(
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


class LossScale:
    """The dynamic scale of Keras' LossScaleOptimizer: halved on overflow, doubled after a while."""

    INITIAL = 2.0**15
    GROWTH_STEPS = 2000

    def __init__(self) -> None:
        self.value = tf.Variable(self.INITIAL, trainable=False)
        self._finite_steps = tf.Variable(0, trainable=False)

    def scale(self, loss: tf.Tensor) -> tf.Tensor:
        return loss * self.value

    def unscale(self, gradients: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        return [gradient / self.value for gradient in gradients]

    def apply(
        self, gradients: Sequence[tf.Tensor], update: Callable[[Sequence[tf.Tensor]], None]
    ) -> None:
        """Update with unscaled gradients, unless one is not finite; the device decides."""
        gradients = self.unscale(gradients)
        is_finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradients])

        def accept() -> None:
            update(gradients)
            steps = self._finite_steps.assign_add(1)
            if steps == self.GROWTH_STEPS:
                self.value.assign(self.value * 2)
                self._finite_steps.assign(0)

        def skip() -> None:
            self.value.assign(tf.maximum(self.value / 2, 1.0))
            self._finite_steps.assign(0)

        tf.cond(is_finite, accept, skip)


class NoLossScale:
    """In LossScale's place where gradients do not underflow."""

    def scale(self, loss: tf.Tensor) -> tf.Tensor:
        return loss

    def unscale(self, gradients: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        return list(gradients)

    def apply(
        self, gradients: Sequence[tf.Tensor], update: Callable[[Sequence[tf.Tensor]], None]
    ) -> None:
        update(gradients)


def make_slots(variables: Sequence[tf.Variable]) -> List[tf.Variable]:
    return [tf.Variable(tf.zeros_like(variable), trainable=False) for variable in variables]
