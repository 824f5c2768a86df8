"""Loss scaling for float16: keeps small gradients from vanishing, and skips steps that overflow."""

from typing import Callable, List, Sequence, Union

import tensorflow as tf

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks.tensorflow1.layers import make_variable

Update = Callable[[Sequence[tf.Tensor]], tf.Operation]


class LossScale:
    """The dynamic scale of tf.train.experimental: halved on overflow, doubled after a while."""

    INITIAL = 2.0**15
    GROWTH_STEPS = 2000

    def __init__(self) -> None:
        self.value = make_variable([], self.INITIAL, trainable=False)
        self._finite_steps = make_variable([], dtype=tf.int64, trainable=False)

    def scale(self, loss: tf.Tensor) -> tf.Tensor:
        return loss * self.value

    def unscale(self, gradients: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        return multiply(gradients, 1 / self.value)

    def apply(self, gradients: Sequence[tf.Tensor], update: Update) -> tf.Operation:
        """Update with unscaled gradients, unless one is not finite; the device decides."""
        gradients = self.unscale(gradients)
        is_finite = tf.reduce_all([is_all_finite(gradient) for gradient in gradients])

        def accept() -> tf.Operation:
            steps = self._finite_steps + 1
            is_due = tf.equal(steps, self.GROWTH_STEPS)
            return tf.group(
                update(gradients),
                self.value.assign(self.value * tf.where(is_due, 2.0, 1.0)),
                self._finite_steps.assign(tf.where(is_due, tf.zeros_like(steps), steps)),
            )

        def skip() -> tf.Operation:
            return tf.group(
                self.value.assign(tf.maximum(self.value / 2, 1.0)),
                self._finite_steps.assign(tf.zeros_like(self._finite_steps)),
            )

        return tf.group(tf.cond(is_finite, accept, skip))


class ConstantLossScale:
    """The same scale in every step, and no check for an overflow; a scale of 1 costs nothing."""

    def __init__(self, scale: int) -> None:
        self._scale = scale

    def scale(self, loss: tf.Tensor) -> tf.Tensor:
        return loss if self._scale == 1 else loss * self._scale

    def unscale(self, gradients: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        if self._scale == 1:
            return list(gradients)
        return multiply(gradients, 1 / self._scale)

    def apply(self, gradients: Sequence[tf.Tensor], update: Update) -> tf.Operation:
        return update(self.unscale(gradients))


def make_loss_scale(case: Case) -> Union[LossScale, ConstantLossScale]:
    if case.axes.precision == "amp-fp16" and not case.axes.constant_loss_scale:
        return LossScale()
    return ConstantLossScale(case.axes.constant_loss_scale or 1)


def multiply(gradients: Sequence[tf.Tensor], factor: Union[tf.Tensor, float]) -> List[tf.Tensor]:
    """On the device of each."""
    products = []
    for gradient in gradients:
        with tf.device(gradient.device):
            products.append(gradient * factor)
    return products


def is_all_finite(gradient: tf.Tensor) -> tf.Tensor:
    with tf.device(gradient.device):
        return tf.reduce_all(tf.math.is_finite(gradient))
