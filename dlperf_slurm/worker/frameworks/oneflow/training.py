"""A case and its ranks -> what updates the weights: optimizer, graphs, gradient averaging."""

from contextlib import contextmanager
from typing import Any, Callable, Iterator

import numpy
import oneflow as flow
from oneflow import nn

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks.oneflow.loader import Batch
from dlperf_slurm.worker.update_rule import ADAMW, Rule, group_by_decay

AMP_TYPES = {"amp-bf16": flow.bfloat16, "amp-fp16": flow.float16}


def make_optimizer(rule: Rule, model: nn.Module) -> flow.optim.Optimizer:
    groups = group_by_decay(model.parameters(), rule.weight_decay)
    if rule.name == ADAMW:
        # OneFlow updates the moments with float32 betas, and corrects their bias with the betas
        # given: if these were not the same, updates would be off by 7e-6.
        betas = numpy.array(rule.betas, numpy.float32)
        return flow.optim.AdamW(
            groups, lr=rule.learning_rate, betas=tuple(betas.tolist()), eps=rule.epsilon
        )
    return flow.optim.SGD(groups, lr=rule.learning_rate, momentum=rule.momentum)


class TrainingGraph(nn.Graph):
    """Compiled training step: batch -> loss before the update; the first call compiles."""

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
    """Compiled forward pass: inputs -> logits; the model is in evaluation mode."""

    def __init__(self, model: nn.Module, precision: str) -> None:
        super().__init__()
        self.model = model
        if precision in AMP_TYPES:
            self.config.enable_amp(True, dtype=AMP_TYPES[precision])

    def build(self, *inputs: flow.Tensor) -> Any:
        return self.model(*inputs)


class SkippedMean:
    """Gradient accumulation for OneFlow's DDP (0.9), which has no `no_sync`.

    DDP sends no buffer twice after a forward pass, so that buffers are marked as sent. After a
    backward pass it divides all buffers by the number of ranks, so that they are multiplied by it.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._is_paused = False
        # runs after DDP's own forward hook, which resets the marks
        model.register_forward_hook(self._mark_as_sent)

    def _mark_as_sent(self, model: nn.Module, inputs: Any, outputs: Any) -> None:
        if self._is_paused:
            for state in model._ddp_state_for_reversed_params.values():
                state[:] = True, True

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Make a context in which a backward pass keeps gradients on their rank, not averaged."""
        self._is_paused = True
        yield
        self._is_paused = False
        for buffer in self._model._bucket_tensors:
            buffer.mul_(flow.env.get_world_size())


def make_global(batch: Batch, device: str) -> Batch:
    """Join the batches of all ranks into global tensors, split along axis 0 over the ranks."""
    placement = flow.placement.all(device)
    return {
        name: tensor.to_global(placement=placement, sbp=flow.sbp.split(0))
        for name, tensor in batch.items()
    }


def read_loss(loss: flow.Tensor) -> float:
    """Return this rank's own loss; a global tensor's share of the mean over ranks is scaled up."""
    if loss.is_global:
        share = loss.to_global(sbp=flow.sbp.partial_sum).to_local()
        return float(share.numpy()) * flow.env.get_world_size()
    return float(loss.numpy())
