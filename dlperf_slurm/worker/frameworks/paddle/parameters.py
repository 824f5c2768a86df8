"""A model's parameters: setting and reading them, how many there are, and which of them decay."""

from typing import Any, Dict, Iterable, Set, Tuple

import numpy
import paddle
from paddle import nn


def list_trained(model: nn.Layer) -> Dict[str, paddle.Tensor]:
    """Parameters by name, a tied weight once; Paddle counts running statistics as parameters."""
    return {
        name: parameter
        for name, parameter in model.named_parameters()
        if not parameter.stop_gradient
    }


def load_weights(model: nn.Layer, weights: Iterable[Tuple[str, Any]]) -> None:
    """Copy NumPy arrays in the definition's layouts into the parameters of the same names."""
    parameters = list_trained(model)
    transposed = find_transposed(model)
    for name, values in weights:
        parameters.pop(name).set_value(values.T if name in transposed else values)
    if parameters:
        raise ValueError(f"no weights for {', '.join(parameters)}")


def read_arrays(model: nn.Layer, tensors: Dict[str, paddle.Tensor]) -> Dict[str, Any]:
    """float32 copies in host memory of what belongs to the parameters of these names."""
    transposed = find_transposed(model)
    arrays = {}
    for name, tensor in tensors.items():
        values = tensor.numpy()
        values = values.T if name in transposed else values
        arrays[name] = numpy.array(values, numpy.float32, order="C")
    return arrays


def find_transposed(model: nn.Layer) -> Set[str]:
    """Names of the weights of linear layers, which are [in, out] in Paddle."""
    return {
        f"{name}.weight" for name, layer in model.named_sublayers() if isinstance(layer, nn.Linear)
    }


def count_parameters(model: nn.Layer) -> int:
    """Trainable scalars."""
    return sum(int(parameter.size) for parameter in list_trained(model).values())


def find_decaying(model: nn.Layer) -> Set[str]:
    """Paddle's own names of matrices and kernels: biases and normalizations do not decay.

    The latter are the parameters with one dimension.
    """
    return {parameter.name for parameter in list_trained(model).values() if parameter.ndim > 1}
