"""A case and its ranks -> what updates the weights: optimizer, graphs, mean of gradients."""

from contextlib import contextmanager
from typing import Any, Callable, ContextManager, Iterator, NamedTuple

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
        # OneFlow moves the moments with float32 betas, and corrects their bias with those given:
        # were they not the same, updates would be 7e-6 off.
        betas = numpy.array(rule.betas, numpy.float32)
        return flow.optim.AdamW(
            groups, lr=rule.learning_rate, betas=tuple(betas.tolist()), eps=rule.epsilon
        )
    return flow.optim.SGD(groups, lr=rule.learning_rate, momentum=rule.momentum)


def set_learning_rate(optimizer: flow.optim.Optimizer, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


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


class Distribution(NamedTuple):
    """After a backward pass of `model`, gradients are the mean's.

    Those of one within `without_mean` are kept on their rank, for the next one to send.
    """

    model: nn.Module
    without_mean: Callable[[], ContextManager[Any]]


def distribute(model: nn.Module) -> Distribution:
    """Average the gradients of an eager backward pass; the model is changed.

    Each becomes a part of a buffer for several, which must be zero before the next step.
    """
    # Running statistics stay per rank, as in the other frameworks: training does not read them,
    # and to send them would be one more collective in each step.
    wrapped = nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    return Distribution(wrapped, SkippedMean(wrapped).pause)


class SkippedMean:
    """What DistributedDataParallel (0.9) has no switch for; two things undo what it does.

    It sends no buffer twice after a forward pass, and divides all that a backward pass has added up
    by the number of ranks.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._is_paused = False
        # after the model's own hook, which begins a new backward pass
        model.register_forward_hook(self._mark_as_sent)

    def _mark_as_sent(self, model: nn.Module, inputs: Any, outputs: Any) -> None:
        if self._is_paused:
            for state in model._ddp_state_for_reversed_params.values():
                state[:] = True, True

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Gradients stay on their rank."""
        self._is_paused = True
        yield
        self._is_paused = False
        for buffer in self._model._bucket_tensors:
            buffer.mul_(flow.env.get_world_size())


def make_model_global(model: nn.Module, device: str) -> None:
    """Make the models of all ranks one, which each rank has a copy of; the model is changed.

    A graph takes no other tensors when there are several ranks. Batch normalization is still over
    the samples of a rank.
    """
    model.to_global(placement=flow.placement.all(device), sbp=flow.sbp.broadcast)


def make_global(batch: Batch, device: str) -> Batch:
    """Make the batches of all ranks one, each rank having its part."""
    placement = flow.placement.all(device)
    return {
        name: tensor.to_global(placement=placement, sbp=flow.sbp.split(0))
        for name, tensor in batch.items()
    }


def read_loss(loss: flow.Tensor) -> float:
    """This rank's own loss, of which a global tensor holds the share in the mean of all ranks."""
    if loss.is_global:
        share = loss.to_global(sbp=flow.sbp.partial_sum).to_local()
        return float(share.numpy()) * flow.env.get_world_size()
    return float(loss.numpy())
