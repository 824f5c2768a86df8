"""The update rule of a case -> the optimizer of OneFlow that follows it."""

from typing import Any, Dict, List

import numpy
import oneflow as flow
from oneflow import nn

from dlperf_slurm.worker.update_rule import ADAMW, Rule


def make_optimizer(rule: Rule, model: nn.Module) -> flow.optim.Optimizer:
    groups = group_by_decay(model, rule.weight_decay)
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


def group_by_decay(model: nn.Module, weight_decay: float) -> List[Dict[str, Any]]:
    """Optimizer groups: matrices and kernels decay, biases and normalizations do not.

    The latter are the parameters with one dimension.
    """
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
