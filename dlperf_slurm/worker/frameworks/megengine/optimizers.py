"""The update rule of a case -> MegEngine's optimizer that follows it."""

from typing import Any, Dict, Iterable, List

import megengine as mge
import numpy
from megengine import Parameter
from megengine import optimizer as optim

from dlperf_slurm.worker import models
from dlperf_slurm.worker.update_rule import ADAMW, Rule


def make_optimizer(
    rule: Rule, parameters: Dict[str, Parameter], definitions: Iterable[models.Parameter]
) -> optim.Optimizer:
    groups = group_by_decay(parameters, definitions, rule.weight_decay)
    if rule.name == ADAMW:
        optimizer = optim.AdamW(groups, lr=rule.learning_rate, betas=rule.betas, eps=rule.epsilon)
    else:
        optimizer = optim.SGD(groups, lr=rule.learning_rate, momentum=rule.momentum)
    for group in optimizer.param_groups:
        # a trace would keep a number as it is in the first step, and reads a tensor in each
        group["lr"] = mge.Tensor(numpy.float32(rule.learning_rate))
    return optimizer


def set_learning_rate(optimizer: optim.Optimizer, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"][...] = mge.Tensor(numpy.float32(learning_rate))


def group_by_decay(
    parameters: Dict[str, Parameter],
    definitions: Iterable[models.Parameter],
    weight_decay: float,
) -> List[Dict[str, Any]]:
    """Optimizer groups: matrices and kernels decay, biases and normalizations do not.

    The latter have one dimension in the definition.
    """
    groups: Dict[bool, List[Parameter]] = {True: [], False: []}
    for name, shape, *_ in definitions:
        groups[len(shape) > 1].append(parameters[name])
    return [
        {"params": groups[True], "weight_decay": weight_decay},
        {"params": groups[False], "weight_decay": 0.0},
    ]
