"""AdamW for Gluon's Trainer, of MXNet's own operator: 1.9 has that, but no class that uses it."""

import math
from typing import Any, Tuple

import mxnet as mx
import numpy


class AdamW(mx.optimizer.Optimizer):
    """Adam with decoupled weight decay and bias correction (Loshchilov and Hutter 2019).

    Epsilon is added to the root of the corrected second moment.
    """

    def __init__(self, beta1: float, beta2: float, epsilon: float, **options: Any) -> None:
        super().__init__(**options)
        # as the operator has them: 1 - 0.999 is 1.3e-5 off in float32, which the correction undoes
        self.beta1 = float(numpy.float32(beta1))
        self.beta2 = float(numpy.float32(beta2))
        self.epsilon = epsilon

    def create_state(self, index: int, weight: mx.nd.NDArray) -> Tuple[Any, Any]:
        return mx.nd.zeros_like(weight), mx.nd.zeros_like(weight)

    def update(self, index: int, weight: Any, grad: Any, state: Tuple[Any, Any]) -> None:
        self._update_count(index)
        step = self._index_update_count[index]
        rate = self._get_lr(index)
        # The operator corrects no bias. To correct the moments is to multiply the learning rate
        # with root / (1 - beta1^step) and epsilon with root.
        root = math.sqrt(1 - self.beta2**step)
        # The operator for many weights at once loses digits of the second moment: its first
        # updates are 3e-5 off.
        mx.nd.contrib.adamw_update(
            weight,
            grad,
            *state,
            rescale_grad=self.rescale_grad,
            lr=rate * root / (1 - self.beta1**step),
            # it multiplies the decay with eta only
            wd=rate * self._get_wd(index),
            eta=1.0,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon * root,
            out=weight,
        )
