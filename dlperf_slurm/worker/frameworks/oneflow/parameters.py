"""A model's parameters: setting them, how many there are, and which of them decay."""

from typing import Any, Dict, Iterable, List, Tuple

import oneflow as flow
from oneflow import nn


def load_weights(model: nn.Module, weights: Iterable[Tuple[str, Any]]) -> None:
    """Copy NumPy arrays into the parameters; their names are those of the state dict."""
    parameters = dict(model.named_parameters())
    with flow.no_grad():
        for name, values in weights:
            parameters.pop(name).copy_(flow.from_numpy(values))
    if parameters:
        raise ValueError(f"no weights for {', '.join(parameters)}")


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
