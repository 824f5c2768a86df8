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


def load_weights(
    session: tf.compat.v1.Session,
    variables: Dict[str, NamedVariable],
    weights: Iterable[Tuple[str, Any]],
) -> None:
    """Copy NumPy arrays in the canonical layout into those variables that there are."""
    values = {
        name: array.transpose(variables[name].axes) for name, array in weights if name in variables
    }
    load_values(session, {name: variables[name].variable for name in values}, values)


def load_values(
    session: tf.compat.v1.Session, variables: Dict[str, tf.Variable], values: Dict[str, Any]
) -> None:
    """Copy NumPy arrays into the variables, in place of what their initializers would compute.

    In one run: each set of operations to run is prepared anew from the whole graph.
    """
    session.run(
        [variables[name].initializer for name in values],
        {variables[name].initializer.inputs[1]: array for name, array in values.items()},
    )


def make_loader(session: tf.compat.v1.Session, variables: Dict[str, tf.Variable]) -> Any:
    """What copies one array for each variable into it, in their order, in one run."""
    initializers = [variable.initializer for variable in variables.values()]
    return session.make_callable(
        initializers, feed_list=[initializer.inputs[1] for initializer in initializers]
    )


def to_canonical(values: Any, axes: Tuple[int, ...]) -> Any:
    """A float32 copy in the canonical layout."""
    return numpy.array(values.transpose(numpy.argsort(axes)), numpy.float32, order="C")


def count_parameters(model: tf.Module) -> int:
    """Trainable scalars; a module lists a tied weight once."""
    return sum(variable.shape.num_elements() for variable in model.trainable_variables)
