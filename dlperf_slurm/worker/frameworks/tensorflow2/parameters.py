"""A model's parameters by canonical name: setting them, reading them, how many there are."""

from typing import Any, Dict, Iterable, NamedTuple, Tuple

import numpy
import tensorflow as tf

from dlperf_slurm.worker.models import Parameter


class NamedVariable(NamedTuple):
    """A variable, and where the canonical dimensions stand in it."""

    variable: tf.Variable
    axes: Tuple[int, ...]


def find_variables(model: tf.Module, parameters: Iterable[Parameter]) -> Dict[str, NamedVariable]:
    """The model's variables by their canonical names, in the order of the definition."""
    variables = {}
    for parameter in parameters:
        path, _, attribute = parameter.name.rpartition(".")
        layer: Any = model
        for part in path.split("."):
            layer = layer[int(part)] if part.isdigit() else getattr(layer, part)
        axes = layer.AXES if len(parameter.shape) > 1 else (0,)
        variables[parameter.name] = NamedVariable(getattr(layer, attribute), axes)
    return variables


def load_weights(variables: Dict[str, NamedVariable], weights: Iterable[Tuple[str, Any]]) -> None:
    """Copy NumPy arrays into the variables."""
    for name, values in weights:
        variable, axes = variables[name]
        variable.assign(values.transpose(axes))


def to_numpy(tensor: Any, axes: Tuple[int, ...]) -> Any:
    """A float32 copy in host memory, in the canonical layout."""
    values = numpy.asarray(tensor, numpy.float32).transpose(numpy.argsort(axes))
    return numpy.array(values, order="C")


def count_parameters(model: tf.Module) -> int:
    """Trainable scalars; a module lists a tied weight once."""
    return sum(variable.shape.num_elements() for variable in model.trainable_variables)
