"""A model -> its parameters by canonical name, and their values to and from the device."""

from typing import Any, Dict, Iterable, Tuple

import numpy
from mindspore import Parameter, Tensor, nn

from dlperf_slurm.worker.weights import match_weights

# MindSpore's names of parameters of normalizations and embeddings
CANONICAL_NAMES = {"gamma": "weight", "beta": "bias", "embedding_table": "weight"}


def find_parameters(model: nn.Cell) -> Dict[str, Parameter]:
    """Return trainable parameters by canonical name; a tied weight once, under its first name.

    Canonical names are those of the model's `Definition`, as in PyTorch: "weight" and "bias" for
    MindSpore's "gamma", "beta" and "embedding_table".
    """
    found = {}
    for path, parameter in model.parameters_and_names():
        module, _, name = path.rpartition(".")
        if parameter.requires_grad:
            name = CANONICAL_NAMES.get(name, name)
            found[f"{module}.{name}" if module else name] = parameter
    return found


def load_weights(parameters: Dict[str, Parameter], weights: Iterable[Tuple[str, Any]]) -> None:
    """Copy `weights`, (name, NumPy array) each, into the parameters of the same names.

    MindSpore's layouts are the definition's. Raises KeyError or ValueError if the names differ.
    """
    for _, parameter, values in match_weights(parameters, weights):
        parameter.set_data(Tensor(values))


def to_numpy(tensor: Tensor) -> Any:
    """Return a copy of a tensor as a float32 NumPy array."""
    return numpy.array(tensor.asnumpy(), numpy.float32)
