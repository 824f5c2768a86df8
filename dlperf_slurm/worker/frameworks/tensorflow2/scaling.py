"""Loss scaling for float16: keeps small gradients from vanishing, and skips steps that overflow."""

from typing import Callable, List, Sequence, Union

import tensorflow as tf

from dlperf_slurm.contract.case import Case

Update = Callable[[Sequence[tf.Tensor]], None]


class LossScale:
    """The dynamic scale of Keras' LossScaleOptimizer: halved on overflow, doubled after a while."""

    INITIAL = 2.0**15
    GROWTH_STEPS = 2000

    def __init__(self) -> None:
        self.value = tf.Variable(self.INITIAL, trainable=False)
        # TensorFlow keeps an int32 on the host, where what XLA compiles for a GPU cannot reach it
        self._finite_steps = tf.Variable(0, trainable=False, dtype=tf.int64)

    def scale(self, loss: tf.Tensor) -> tf.Tensor:
        return loss * self.value

    def unscale(self, gradients: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        return [gradient / self.value for gradient in gradients]

    def apply(self, gradients: Sequence[tf.Tensor], update: Update) -> None:
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


class ConstantLossScale:
    """The same scale in every step, and no check for an overflow; a scale of 1 costs nothing."""

    def __init__(self, scale: int) -> None:
        self._scale = scale

    def scale(self, loss: tf.Tensor) -> tf.Tensor:
        return loss if self._scale == 1 else loss * self._scale

    def unscale(self, gradients: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        if self._scale == 1:
            return list(gradients)
        return [gradient * (1 / self._scale) for gradient in gradients]

    def apply(self, gradients: Sequence[tf.Tensor], update: Update) -> None:
        update(self.unscale(gradients))


def make_loss_scale(case: Case) -> Union[LossScale, ConstantLossScale]:
    if case.axes.precision == "amp-fp16" and not case.axes.constant_loss_scale:
        return LossScale()
    return ConstantLossScale(case.axes.constant_loss_scale or 1)
