"""A model's parameters: setting and reading them, and how many there are."""

from typing import Any, Dict, Iterable, Tuple

import numpy
from megengine import Parameter, Tensor

from dlperf_slurm.worker import models


def load_weights(parameters: Dict[str, Parameter], weights: Iterable[Tuple[str, Any]]) -> None:
    """Copy NumPy arrays into the parameters of the same names."""
    missing = dict(parameters)
    for name, values in weights:
        parameter = missing.pop(name)
        # a batch normalization's are [1, channels, 1, 1]
        parameter[...] = Tensor(values.reshape(parameter.shape))
    if missing:
        raise ValueError(f"no weights for {', '.join(missing)}")


def read_arrays(
    tensors: Dict[str, Tensor], definitions: Iterable[models.Parameter]
) -> Dict[str, Any]:
    """float32 copies in host memory, in the definition's layouts."""
    return {
        name: numpy.array(tensors[name].numpy(), numpy.float32).reshape(shape)
        for name, shape, *_ in definitions
    }


def count_parameters(parameters: Dict[str, Parameter]) -> int:
    """Trainable scalars."""
    return sum(int(numpy.prod(parameter.shape)) for parameter in parameters.values())
