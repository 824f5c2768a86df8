"""The loss scale of a case -> what scales losses and gradients: Paddle's scaler or a constant."""

from typing import Dict, List, Union

import paddle

from dlperf_slurm.contract.case import Case


class ConstantScaler:
    """In a GradScaler's place: the same scale in every step, and no check for an overflow.

    A scale of 1 costs nothing.
    """

    def __init__(self, scale: int, parameters: List[paddle.Tensor]) -> None:
        self._scale = scale
        self._parameters = parameters

    def scale(self, loss: paddle.Tensor) -> paddle.Tensor:
        return loss if self._scale == 1 else loss * self._scale

    def step(self, optimizer: paddle.optimizer.Optimizer) -> None:
        if self._scale != 1:
            with paddle.no_grad():
                for parameter in self._parameters:
                    parameter.grad.scale_(1 / self._scale)
        optimizer.step()

    def update(self) -> None:
        """There is nothing to adapt."""

    def state_dict(self) -> Dict[str, float]:
        return {"scale": float(self._scale)}


def make_scaler(
    case: Case, parameters: List[paddle.Tensor]
) -> Union[paddle.amp.GradScaler, ConstantScaler]:
    if case.axes.precision == "amp-fp16" and not case.axes.constant_loss_scale:
        check_overflow_message()
        # it reads the overflow flag back in every step
        return paddle.amp.GradScaler()
    return ConstantScaler(case.axes.constant_loss_scale or 1, parameters)


def check_overflow_message() -> None:
    """GradScaler (3.3) prints float(its scale), an array of one, whenever it finds an overflow."""
    try:
        float(paddle.ones([1]))
    except TypeError as error:
        raise RuntimeError(
            "Paddle's GradScaler fails at its first overflow beside NumPy 2.4 or newer: install "
            "numpy<2.4, or use precision 'amp-bf16', or loss_scale = 128"
        ) from error
