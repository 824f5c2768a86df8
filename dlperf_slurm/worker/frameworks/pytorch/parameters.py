"""A model's parameters: how many there are, and which of them decay."""

from typing import Any, Dict, List

from torch import nn


def count_parameters(model: nn.Module) -> int:
    """Trainable scalars; `parameters` yields a tied weight once."""
    return sum(parameter.numel() for parameter in model.parameters())


def group_by_decay(model: nn.Module, weight_decay: float) -> List[Dict[str, Any]]:
    """Optimizer groups: matrices and kernels decay, biases and normalizations do not.

    The latter are the parameters with one dimension.
    """
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
