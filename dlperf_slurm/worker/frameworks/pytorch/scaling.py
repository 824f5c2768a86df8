"""The loss scale of a case -> what scales losses and unscales gradients: torch's, or a constant."""

from typing import Any, List, Union

import torch
from torch import Tensor

from dlperf_slurm.contract.case import Case

PURE_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class ConstantScaler:
    """In a GradScaler's place: the same scale in every step, and no check for an overflow.

    A scale of 1 costs nothing.
    """

    def __init__(self, scale: int) -> None:
        self._scale = scale
        self._is_unscaled = False

    def scale(self, loss: Tensor) -> Tensor:
        return loss if self._scale == 1 else loss * self._scale

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        if self._scale != 1:
            torch._foreach_mul_(list_gradients(optimizer), 1 / self._scale)
        self._is_unscaled = True

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        if not self._is_unscaled:
            self.unscale_(optimizer)
        optimizer.step()

    def update(self) -> None:
        self._is_unscaled = False

    def get_scale(self) -> float:
        return float(self._scale)


def list_gradients(optimizer: torch.optim.Optimizer) -> List[Tensor]:
    groups: Any = optimizer.param_groups
    return [parameter.grad for group in groups for parameter in group["params"]]


def make_scaler(case: Case, device: torch.device) -> Union[torch.amp.GradScaler, ConstantScaler]:
    if case.axes.precision == "amp-fp16" and not case.axes.constant_loss_scale:
        return torch.amp.GradScaler(device.type)
    return ConstantScaler(case.axes.constant_loss_scale or 1)
