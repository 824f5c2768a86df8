"""The update rule of a case -> the optimizer of Paddle that follows it."""

from typing import Any, Optional

import paddle
from paddle import nn

from dlperf_slurm.worker.frameworks.paddle.parameters import find_decaying, list_trained
from dlperf_slurm.worker.update_rule import ADAMW, Rule


def make_optimizer(
    rule: Rule, model: nn.Layer, largest_norm: Optional[float]
) -> paddle.optimizer.Optimizer:
    """Which clips the gradients to `largest_norm`, if there is one, and then adds the decay.

    Not by parameter groups: Paddle would clip each to a norm of its own.
    """
    # Paddle scales by largest / max(norm, largest); torch adds 1e-6 to the norm.
    clip = nn.ClipGradByGlobalNorm(largest_norm) if largest_norm is not None else None
    options: Any = {"parameters": model.parameters(), "grad_clip": clip}
    if rule.name == ADAMW:
        decaying = find_decaying(model)
        return paddle.optimizer.AdamW(
            rule.learning_rate,
            *rule.betas,
            rule.epsilon,
            weight_decay=rule.weight_decay,
            apply_decay_param_fun=decaying.__contains__,
            **options,
        )
    for parameter in list_trained(model).values():
        if parameter.ndim > 1:
            parameter.regularizer = paddle.regularizer.L2Decay(rule.weight_decay)
    if rule.momentum:
        return paddle.optimizer.Momentum(rule.learning_rate, rule.momentum, **options)
    return paddle.optimizer.SGD(rule.learning_rate, **options)
