"""A model -> static graphs: with its loss and its optimizer of a whole step, alone of inference."""

from typing import Any, Callable

import oneflow as flow
from oneflow import nn

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks.oneflow.pipeline import Batch

AMP_TYPES = {"amp-bf16": flow.bfloat16, "amp-fp16": flow.float16}


class TrainingGraph(nn.Graph):
    """Called with the batch, returns the loss before the update; the first call compiles it."""

    def __init__(
        self,
        model: nn.Module,
        compute_loss: Callable[[Any, Batch], flow.Tensor],
        optimizer: flow.optim.Optimizer,
        case: Case,
    ) -> None:
        super().__init__()
        self.model = model
        self._compute_loss = compute_loss
        self.add_optimizer(optimizer)
        if case.axes.precision in AMP_TYPES:
            self.config.enable_amp(True, dtype=AMP_TYPES[case.axes.precision])
        if case.axes.constant_loss_scale:
            self.set_grad_scaler(flow.amp.StaticGradScaler(case.axes.constant_loss_scale))
        elif case.axes.precision == "amp-fp16":
            self.set_grad_scaler(flow.amp.GradScaler())

    def build(self, batch: Batch) -> flow.Tensor:
        loss = self._compute_loss(self.model, batch)
        loss.backward()
        return loss


class InferenceGraph(nn.Graph):
    """Called with the inputs, returns the logits; the model is in evaluation mode."""

    def __init__(self, model: nn.Module, precision: str) -> None:
        super().__init__()
        self.model = model
        if precision in AMP_TYPES:
            self.config.enable_amp(True, dtype=AMP_TYPES[precision])

    def build(self, *inputs: flow.Tensor) -> Any:
        return self.model(*inputs)
