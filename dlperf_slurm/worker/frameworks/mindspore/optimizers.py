"""AdamW as the definition of BERT asks for it: with bias correction, by MindSpore's operator."""

import math
from typing import List, Tuple

import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops


class AdamW(nn.Cell):
    """Updates parameters in place; those with one dimension do not decay.

    MindSpore's nn.AdamWeightDecay corrects no bias, and its AdamW that does is for Ascend only.
    """

    def __init__(
        self,
        parameters: List[Parameter],
        learning_rate: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        weight_decay: float,
    ) -> None:
        super().__init__()
        self.parameters = ParameterTuple(parameters)
        self.first_moments = self.parameters.clone("first_moment", init="zeros")
        self.second_moments = self.parameters.clone("second_moment", init="zeros")
        self.decays = tuple(weight_decay if p.ndim > 1 else 0.0 for p in parameters)
        self.learning_rate = learning_rate
        self.epsilon = epsilon
        # As the operator has them: 1 - 0.999 is 1.3e-5 off in float32, which the correction undoes.
        self.beta1 = Tensor(beta1, ms.float32)
        self.beta2 = Tensor(beta2, ms.float32)
        self.log_beta1 = math.log(float(self.beta1.asnumpy()))
        self.log_beta2 = math.log(float(self.beta2.asnumpy()))
        self.steps = Parameter(Tensor(0.0, ms.float32), name="steps", requires_grad=False)
        self.update = ops.AdamWeightDecay()

    def construct(self, gradients: Tuple[Tensor, ...]) -> Tensor:
        # The operator corrects no bias. To correct the moments is to multiply the learning rate
        # with root / (1 - beta1^step) and epsilon with root; expm1 keeps the digits of 1 - beta.
        steps = ops.assign_add(self.steps, 1.0)
        root = ops.sqrt(-ops.expm1(steps * self.log_beta2))
        correction = root / -ops.expm1(steps * self.log_beta1)
        rate = self.learning_rate * correction
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
