"""A model's parameters: setting them, and how many there are."""

from typing import Any, Iterable, Tuple

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
