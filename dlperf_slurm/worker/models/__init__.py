"""The models: one module per model, named as in `axes.model`; shapes and costs, no framework.

A framework builds a model from its module's `Definition`. Both load without site-packages.
"""

import dataclasses
import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, NamedTuple, Tuple, cast

if TYPE_CHECKING:
    from typing import Protocol

    class Definition(Protocol):
        """A frozen dataclass: its fields are the model's parameters, their defaults full size."""

        def list_parameters(self) -> Iterator["Parameter"]:
            """What is trained, in the order of the network, a tied weight once."""

        def list_running_statistics(self) -> Iterator["Parameter"]:
            """What training moves without gradients, and evaluation reads."""

        @property
        def parameter_count(self) -> int:
            """Scalars in `list_parameters`."""

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
        # the name of the real files, where a matrix names no other
        DATASET: str
        Definition: Any


class Parameter(NamedTuple):
    """An array of a model by its canonical name; it starts as N(mean, standard_deviation^2).

    Layouts are PyTorch's: convolution [out, in, height, width], linear [out, in], embedding [row,
    hidden], and names are those of its state dict. Weight decay is for more than one dimension.
    """

    name: str
    shape: Tuple[int, ...]
    mean: float
    standard_deviation: float = 0.0

    @property
    def size(self) -> int:
        size = 1
        for length in self.shape:
            size *= length
        return size


def list_linear(
    name: str, in_size: int, out_size: int, standard_deviation: float
) -> Iterator[Parameter]:
    """Weight and bias of a linear layer."""
    yield Parameter(f"{name}.weight", (out_size, in_size), 0.0, standard_deviation)
    yield Parameter(f"{name}.bias", (out_size,), 0.0)


def list_normalization(name: str, size: int) -> Iterator[Parameter]:
    """Weight and bias of a batch or layer normalization, which starts as the identity."""
    yield Parameter(f"{name}.weight", (size,), 1.0)
    yield Parameter(f"{name}.bias", (size,), 0.0)


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
