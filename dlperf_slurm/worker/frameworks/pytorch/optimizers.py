"""The update rule of a case -> the optimizer of torch that follows it."""

from typing import Any

import torch
from torch import nn

from dlperf_slurm.worker.frameworks.pytorch.parameters import group_by_decay
from dlperf_slurm.worker.update_rule import ADAMW, Rule


def make_optimizer(rule: Rule, model: nn.Module) -> torch.optim.Optimizer:
    # fused: under GradScaler the others read the overflow flag back to the host in every step.
    groups = group_by_decay(model, rule.weight_decay)
    if rule.name == ADAMW:
        return torch.optim.AdamW(
            groups, lr=rule.learning_rate, betas=rule.betas, eps=rule.epsilon, fused=True
        )
    optimizer = torch.optim.SGD(groups, lr=rule.learning_rate, momentum=rule.momentum, fused=True)
    if rule.momentum:
        # Left alone, fused SGD allocates the momentum uninitialized in the first step, and keeps it
        # so when GradScaler skips that step for an overflow, as it does (seen in torch 2.13).
        for parameter in model.parameters():
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    groups: Any = optimizer.param_groups
    for group in groups:
        group["lr"] = learning_rate
