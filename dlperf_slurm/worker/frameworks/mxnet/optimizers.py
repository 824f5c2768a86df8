"""The update rule of a case -> the optimizer of MXNet that follows it, in a rank or in a server."""

import math
from typing import Any, Dict, List, Tuple

import mxnet as mx
import numpy
from mxnet.gluon import Parameter

from dlperf_slurm.worker.update_rule import ADAMW, Rule

# In the place of 0, by which a momentum that has the learning rate in it could not be divided; no
# weight of float32 changes by it.
LEAST_LEARNING_RATE = 1e-20


class Momentum(mx.optimizer.SGD):
    """SGD with momentum, for a learning rate that may change.

    MXNet has the learning rate within the momentum that it keeps, so that the momentum of the first
    update at another one must be as many times as large.
    """

    def __init__(self, momentum: float, **options: Any) -> None:
        super().__init__(momentum=momentum, **options)
        self._plain_momentum = momentum
        # by the first of the weights that are updated at once
        self._last_rates: Dict[int, float] = {}

    def set_learning_rate(self, lr: float) -> None:
        super().set_learning_rate(max(lr, LEAST_LEARNING_RATE))

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        first = index[0] if isinstance(index, (list, tuple)) else index
        self.momentum = self._plain_momentum * self.lr / self._last_rates.get(first, self.lr)
        super().update_multi_precision(index, weight, grad, state)
        self._last_rates[first] = self.lr


class AdamW(mx.optimizer.Optimizer):
    """Adam with decoupled weight decay and bias correction (Loshchilov and Hutter 2019).

    Epsilon is added to the root of the corrected second moment. MXNet 1.9 has an operator for it,
    but no class that uses that.
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


def make_optimizer(rule: Rule, parameters: List[Parameter], scale: float) -> mx.optimizer.Optimizer:
    """`scale` makes the mean of the sums that it is given as gradients."""
    choose_decay(parameters)
    options = {
        "learning_rate": rule.learning_rate,
        "wd": rule.weight_decay,
        "rescale_grad": scale,
    }
    if rule.name == ADAMW:
        beta1, beta2 = rule.betas
        return AdamW(beta1=beta1, beta2=beta2, epsilon=rule.epsilon, **options)
    if rule.momentum:
        return Momentum(momentum=rule.momentum, **options)
    return mx.optimizer.SGD(**options)


def choose_decay(parameters: List[Parameter]) -> None:
    """Matrices and kernels decay, biases and normalizations do not.

    The latter are the parameters with one dimension. Left alone, MXNet decays all.
    """
    for parameter in parameters:
        parameter.wd_mult = 1.0 if len(parameter.shape) > 1 else 0.0
