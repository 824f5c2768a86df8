"""A model's parameters: their canonical names, setting them, and how many there are."""

from typing import Any, Dict, Iterable, Tuple

import mxnet as mx
from mxnet.gluon import HybridBlock, Parameter

# as Gluon calls them in its normalizations
CANONICAL_NAMES = {"gamma": "weight", "beta": "bias"}


def find_parameters(model: HybridBlock) -> Dict[str, Parameter]:
    """What is trained, by canonical name; a tied weight once, by its first name."""
    found: Dict[str, Parameter] = {}
    # the names by which Gluon saves and loads a model's parameters
    for path, parameter in model._collect_params_with_prefix().items():
        module, _, name = path.rpartition(".")
        # compared by identity: `in` would ask Parameter for equality
        is_tied = any(parameter is other for other in found.values())
        if parameter.grad_req != "null" and not is_tied:
            found[f"{module}.{CANONICAL_NAMES.get(name, name)}"] = parameter
    return found


def load_weights(parameters: Dict[str, Parameter], weights: Iterable[Tuple[str, Any]]) -> None:
    """Copy NumPy arrays into the parameters; Gluon's layouts are the definition's."""
    missing = dict(parameters)
    for name, values in weights:
        missing.pop(name).set_data(mx.nd.array(values))
    if missing:
        raise ValueError(f"no weights for {', '.join(missing)}")


def count_parameters(parameters: Dict[str, Parameter]) -> int:
    """Trainable scalars."""
    return sum(parameter.data().size for parameter in parameters.values())
