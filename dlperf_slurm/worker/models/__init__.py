"""The models: one module per model, named as in `axes.model`; shapes and costs, no framework.

A framework builds a model from its module's `Definition`. Both load without site-packages.
"""

import dataclasses
import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING, Any, List, Mapping, cast

if TYPE_CHECKING:
    from typing import Protocol

    class Definition(Protocol):
        """A frozen dataclass: its fields are the model's parameters, their defaults full size."""

        @property
        def parameter_count(self) -> int:
            """Trainable scalars, a tied weight counted once."""

        @property
        def flops_per_sample(self) -> int:
            """Of one sample's forward pass, a multiply-add counted as 2.

            Only matrix products and convolutions count. Training costs 3 times as much: the
            backward pass has one product for the input's and one for the weight's gradient.
            """

        def find_problems(self) -> List[str]:
            """One sentence per field that cannot be built, naming it and what is allowed."""

    class Model(Protocol):
        SAMPLE_UNIT: str
        Definition: Any


def list_models() -> List[str]:
    """Names of the models in this package, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load_model(name: str) -> "Model":
    """The model's module; ModuleNotFoundError for a name not in `list_models`."""
    return cast("Model", import_module(f"{__name__}.{name}"))


def find_type_problems(definition: object) -> List[str]:
    """Fields that are not what their default is: an int, a float or a tuple of ints."""
    problems = []
    for field in dataclasses.fields(cast(Any, definition)):
        value = getattr(definition, field.name)
        if isinstance(field.default, tuple):
            if type(value) is not tuple or not all(type(item) is int for item in value):
                problems.append(f"{field.name} is {value!r}; allowed: a list of integers")
        elif isinstance(field.default, float):
            if type(value) not in (int, float):
                problems.append(f"{field.name} is {value!r}; allowed: a number")
        elif type(value) is not int:
            problems.append(f"{field.name} is {value!r}; allowed: an integer")
    return problems


def find_size_problems(definition: object, minimum: Mapping[str, int]) -> List[str]:
    """Integer fields below their minimum, or below 1 where `minimum` has none.

    To be called when `find_type_problems` found none.
    """
    problems = []
    for field in dataclasses.fields(cast(Any, definition)):
        value = getattr(definition, field.name)
        if isinstance(field.default, float):
            continue
        least = minimum.get(field.name, 1)
        if any(size < least for size in (value if isinstance(value, tuple) else (value,))):
            problems.append(f"{field.name} is {value!r}; allowed: {least} or more")
    return problems
