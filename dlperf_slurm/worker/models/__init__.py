"""The models: one module per model, named as in `axes.model`; what it is, without a framework.

A module has what `Model` below lists, and the rest of the tool asks it and knows no model's name: a
new model is its module here, and a builder in each adapter that has it. A builder makes the network
of a module's `Definition`, which is a `Network`. All of it loads without site-packages.
"""

import dataclasses
import pkgutil
from abc import ABC, abstractmethod
from importlib import import_module
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Tuple,
    cast,
)

from dlperf_slurm.worker.update_rule import ADAMW, Rule

if TYPE_CHECKING:
    from typing import Protocol

    from numpy.random import RandomState
    from numpy.typing import NDArray

    from dlperf_slurm.contract.case import ModelParameter

    class Model(Protocol):
        # what throughput counts
        SAMPLE_UNIT: str
        # the kind of its samples, which is the module of `worker.datasets` that reads such files
        INPUT: str
        # those arrays of a sample that the network takes, in its order; others are for the loss
        INPUTS: Tuple[str, ...]
        # the name of the real files, where a matrix names no other
        DATASET: str
        # whether it is a classifier, with a field `classes`, that can be trained to an accuracy
        HAS_ACCURACY: bool
        # whether it continues texts token by token: its logits are of the next token, the arrays of
        # a sample are [sequence_length], and that field is the most of a prompt and what follows;
        # its definition has `count_decoded_values`, as that of `llama`
        GENERATES: bool
        # whether what a sample gives depends on the others of its rank's batch: two ranks are then
        # not one rank with the joined batch
        HAS_BATCH_STATISTICS: bool
        # the kinds of its layers that not every framework computes well everywhere
        LAYERS: Tuple[str, ...]
        # how the names of parameters end whose gradient is exactly zero, which rounding is not
        ZERO_GRADIENTS: Tuple[str, ...]
        # published sizes by their names: parameters that differ from the defaults
        PRESETS: Mapping[str, Mapping[str, ModelParameter]]
        VERIFICATION: "Verification"
        # a `Network`; untyped for the fields that each has of its own
        Definition: Any


class Verification(NamedTuple):
    """A small size of a model at which adapters are compared; it has all that full size has.

    `gradient_tolerance` is the largest relative difference of one parameter's gradient that
    rounding explains.
    """

    model_parameters: "Mapping[str, ModelParameter]"
    batch_size_per_device: int
    gradient_tolerance: float


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


class Network(ABC):
    """A base of frozen dataclasses: fields are a model's parameters, their defaults full size.

    A builder reads the fields, and whatever constants both agree on.
    """

    # of the model's recipe, with whatever optimizer
    WEIGHT_DECAY: ClassVar[float]
    CLIP_GLOBAL_NORM: ClassVar[float]
    # of the integers among the fields; 1 for those that are not here
    LEAST: ClassVar[Mapping[str, int]] = {}

    @abstractmethod
    def list_parameters(self) -> Iterator[Parameter]:
        """What is trained, in the order of the network, a tied weight once."""

    def list_running_statistics(self) -> Iterator[Parameter]:
        """What training moves without gradients, and evaluation reads."""
        return iter(())

    @property
    def parameter_count(self) -> int:
        """Scalars in `list_parameters`; running statistics are none."""
        return sum(parameter.size for parameter in self.list_parameters())

    @property
    @abstractmethod
    def flops_per_sample(self) -> int:
        """The cost of one sample's forward pass, a multiply-add counted as 2.

        Only matrix products and convolutions count. Training costs 3 times as much: the
        backward pass has one product for the input's and one for the weight's gradient.
        """

    @property
    def tokens_per_sample(self) -> int:
        """What its throughput in tokens counts of a sample; 0 for one published in samples."""
        return 0

    @abstractmethod
    def make_sample(self, random: "RandomState") -> "Dict[str, NDArray[Any]]":
        """A synthetic sample: arrays of fixed shapes, without the batch's axis."""

    @abstractmethod
    def make_rule(self, global_batch_size: int) -> Rule:
        """The update rule of the optimizer that the model was published with."""

    def find_problems(self) -> List[str]:
        """One sentence per field that cannot be built, naming it and what is allowed."""
        return (
            find_type_problems(self)
            or find_size_problems(self, self.LEAST)
            or list(self.find_conflicts())
        )

    @abstractmethod
    def find_conflicts(self) -> Iterator[str]:
        """As `find_problems`: what does not go together of fields of the right types and sizes."""


class Transformer(Network):
    """Layers of attention with heads; trained by AdamW, at the same rate whatever the batch."""

    hidden_size: int
    heads: int

    LEARNING_RATE: ClassVar[float]
    BETA1: ClassVar[float]
    BETA2: ClassVar[float]
    ADAM_EPSILON: ClassVar[float]

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.heads

    def make_rule(self, global_batch_size: int) -> Rule:
        return Rule(
            name=ADAMW,
            learning_rate=self.LEARNING_RATE,
            weight_decay=self.WEIGHT_DECAY,
            betas=(self.BETA1, self.BETA2),
            epsilon=self.ADAM_EPSILON,
        )

    def find_conflicts(self) -> Iterator[str]:
        if self.hidden_size % self.heads:
            yield f"hidden_size is {self.hidden_size}; allowed: a multiple of heads ({self.heads})"


def list_linear(
    name: str, in_size: int, out_size: int, standard_deviation: float
) -> Iterator[Parameter]:
    """Weight and bias of a linear layer."""
    yield Parameter(f"{name}.weight", (out_size, in_size), 0.0, standard_deviation)
    yield Parameter(f"{name}.bias", (out_size,), 0.0)


def list_matrix(
    name: str, in_size: int, out_size: int, standard_deviation: float
) -> Iterator[Parameter]:
    """Weight of a linear layer without a bias."""
    yield Parameter(f"{name}.weight", (out_size, in_size), 0.0, standard_deviation)


def list_scale(name: str, size: int) -> Iterator[Parameter]:
    """Weight of a normalization without a bias, which starts as the identity."""
    yield Parameter(f"{name}.weight", (size,), 1.0)


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


def find_fraction_problem(name: str, value: float) -> Iterator[str]:
    """A field, by its name, that is no part of 1."""
    if not 0 <= value < 1:
        yield f"{name} is {value}; allowed: 0 <= value < 1"


def find_type_problems(definition: object) -> List[str]:
    """Fields that are not what their default is: an int, a float, a bool or a tuple of ints."""
    problems = []
    for field in dataclasses.fields(cast(Any, definition)):
        value = getattr(definition, field.name)
        if isinstance(field.default, tuple):
            if type(value) is not tuple or not all(type(item) is int for item in value):
                problems.append(f"{field.name} is {value!r}; allowed: a list of integers")
        elif isinstance(field.default, bool):
            if type(value) is not bool:
                problems.append(f"{field.name} is {value!r}; allowed: true or false")
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
        if isinstance(field.default, (float, bool)):
            continue
        least = minimum.get(field.name, 1)
        if any(size < least for size in (value if isinstance(value, tuple) else (value,))):
            problems.append(f"{field.name} is {value!r}; allowed: {least} or more")
    return problems
