"""The update rule of a case -> what follows it in MindSpore; parameters change in place.

Those with one dimension do not decay.
"""

import math
from typing import List, Sequence, Tuple

import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from dlperf_slurm.worker.update_rule import ADAMW, Rule


class AdamW(nn.Cell):
    """With bias correction, by MindSpore's operator.

    MindSpore's nn.AdamWeightDecay corrects no bias, and its AdamW that does is for Ascend only.
    """

    def __init__(self, parameters: List[Parameter], rule: Rule) -> None:
        super().__init__()
        self.parameters = ParameterTuple(parameters)
        self.first_moments = self.parameters.clone("first_moment", init="zeros")
        self.second_moments = self.parameters.clone("second_moment", init="zeros")
        self.decays = list_decays(parameters, rule)
        self.epsilon = rule.epsilon
        # As the operator has them: 1 - 0.999 is 1.3e-5 off in float32, which the correction undoes.
        self.beta1, self.beta2 = (Tensor(beta, ms.float32) for beta in rule.betas)
        self.log_beta1 = math.log(float(self.beta1.asnumpy()))
        self.log_beta2 = math.log(float(self.beta2.asnumpy()))
        self.steps = Parameter(Tensor(0.0, ms.float32), name="steps", requires_grad=False)
        self.update = ops.AdamWeightDecay()

    def construct(self, gradients: Tuple[Tensor, ...], learning_rate: Tensor) -> Tensor:
        # The operator corrects no bias. To correct the moments is to multiply the learning rate
        # with root / (1 - beta1^step) and epsilon with root; expm1 keeps the digits of 1 - beta.
        steps = ops.assign_add(self.steps, 1.0)
        root = ops.sqrt(-ops.expm1(steps * self.log_beta2))
        correction = root / -ops.expm1(steps * self.log_beta1)
        rate = learning_rate * correction
        epsilon = self.epsilon * root
        for index in range(len(self.parameters)):
            self.update(
                self.parameters[index],
                self.first_moments[index],
                self.second_moments[index],
                rate,
                self.beta1,
                self.beta2,
                epsilon,
                # the operator multiplies it with its own learning rate
                self.decays[index] / correction,
                gradients[index],
            )
        return steps


class Momentum(nn.Cell):
    """Or plain gradient descent, for which MindSpore's own nn.SGD would keep a state."""

    def __init__(self, parameters: List[Parameter], rule: Rule) -> None:
        super().__init__()
        self.parameters = ParameterTuple(parameters)
        self.decays = list_decays(parameters, rule)
        self.momentum = rule.momentum
        if rule.momentum:
            self.velocities = self.parameters.clone("velocity", init="zeros")
            self.update = ops.ApplyMomentum()
        else:
            self.update = ops.ApplyGradientDescent()

    def construct(self, gradients: Tuple[Tensor, ...], learning_rate: Tensor) -> Tensor:
        for index in range(len(self.parameters)):
            weight, change = self.parameters[index], gradients[index]
            if self.decays[index] > 0:
                change = change + self.decays[index] * weight
            if self.momentum > 0:
                velocity = self.velocities[index]
                self.update(weight, velocity, learning_rate, change, self.momentum)
            else:
                self.update(weight, learning_rate, change)
        return learning_rate


def make_optimizer(rule: Rule, parameters: List[Parameter]) -> nn.Cell:
    """It takes gradients and learning rate; as a parameter, a graph would not see that change."""
    return AdamW(parameters, rule) if rule.name == ADAMW else Momentum(parameters, rule)


def list_decays(parameters: Sequence[Parameter], rule: Rule) -> Tuple[float, ...]:
    return tuple(rule.weight_decay if p.ndim > 1 else 0.0 for p in parameters)
