"""The models: one module per model, named as in `axes.model`, independent of any framework.

A module has the names that `Model` lists. The rest of the tool asks the module and knows no model
by name: a new model is a module here and a builder in each adapter that supports it. A builder
builds the network of a module's `Definition`, which is a `Network`. All modules import without
site-packages.
"""

import dataclasses
import pkgutil
from abc import ABC, abstractmethod
from importlib import import_module
from types import MappingProxyType
from typing import Any, ClassVar, Iterator, List, Mapping, NamedTuple, Tuple, cast

from dlperf_slurm.contract.case import ModelParameter
from dlperf_slurm.worker.annotations import Arrays, Protocol, RandomState
from dlperf_slurm.worker.update_rule import Rule


class Model(Protocol):
    """The names that the module of a model must define."""

    # the unit that throughput counts
    SAMPLE_UNIT: str
    # the kind of its samples: the module of `worker.datasets` that reads such files
    INPUT: str
    # the arrays of a sample that the network takes, in order; other arrays are for the loss
    INPUTS: Tuple[str, ...]
    # the data set of real files, unless a matrix names another
    DATASET: str
    # whether it is a classifier with a field `classes`, which can be trained to an accuracy
    HAS_ACCURACY: bool
    # whether it generates text token by token: logits are of the next token, and the arrays of
    # a sample are [sequence_length], the maximum of prompt and generated tokens together; its
    # Definition has `count_decoded_values`, as that of `llama`
    GENERATES: bool
    # whether a sample's result depends on the other samples of its rank's batch, so that two
    # ranks differ from one rank with the joined batch
    HAS_BATCH_STATISTICS: bool
    # kinds of layers that some framework lacks or computes badly somewhere
    LAYERS: Tuple[str, ...]
    # suffixes of the names of parameters whose exact gradient is zero, apart from rounding
    ZERO_GRADIENTS: Tuple[str, ...]
    # name in tables of the model with its default sizes
    PUBLISHED_NAME: str
    # published sizes by name: the model parameters that differ from the defaults
    PRESETS: Mapping[str, Mapping[str, ModelParameter]]
    VERIFICATION: "Verification"
    # a `Network`; Any, because each has fields of its own
    Definition: Any


class Verification(NamedTuple):
    """A small version of a model for comparing adapters, with all kinds of layers of the full size.

    `gradient_tolerance` is the largest relative difference of a parameter's gradient that rounding
    explains. `reduced_precision_parameters` replace others in precisions below fp32.
    """

    model_parameters: Mapping[str, ModelParameter]
    batch_size_per_device: int
    gradient_tolerance: float
    reduced_precision_parameters: Mapping[str, ModelParameter] = MappingProxyType({})


class Parameter(NamedTuple):
    """One array of a model, by canonical name; initial values are N(mean, standard_deviation^2).

    Names and layouts are those of PyTorch's state dict: convolution [out, in, height, width],
    linear [out, in], embedding [row, hidden]. Weight decay applies to parameters with more than one
    dimension.
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
    """Base class of frozen dataclasses: fields are model parameters, defaults are the full size.

    A builder reads the fields, and the class constants that both agree on.
    """

    # the update rule that the model was published with; its weight decay is used with any other
    RULE: ClassVar[Rule]
    CLIP_GLOBAL_NORM: ClassVar[float]
    # minimum of integer fields; 1 for fields that are not listed
    LEAST: ClassVar[Mapping[str, int]] = {}

    @abstractmethod
    def list_parameters(self) -> Iterator[Parameter]:
        """Yield the trainable parameters in the network's order; a tied weight once."""

    def list_running_statistics(self) -> Iterator[Parameter]:
        """Yield the statistics that training updates without gradients and evaluation reads."""
        return iter(())

    @property
    def parameter_count(self) -> int:
        """Number of trainable scalars, without running statistics."""
        return sum(parameter.size for parameter in self.list_parameters())

    @property
    @abstractmethod
    def flops_per_sample(self) -> int:
        """FLOPs of one sample's forward pass, with a multiply-add counted as 2.

        Only matrix products and convolutions count. Training costs 3 times as much: the backward
        pass has one product for the gradient of the input and one for that of the weight.
        """

    @property
    def tokens_per_sample(self) -> int:
        """Tokens per sample for throughput in tokens; 0 for a model reported in samples."""
        return 0

    @abstractmethod
    def make_sample(self, random: RandomState) -> Arrays:
        """Make a synthetic sample, name -> array: of fixed shapes, without the batch axis."""

    def make_rule(self, global_batch_size: int) -> Rule:
        """Return the update rule that the model was published with, for this global batch size."""
        return self.RULE

    def find_problems(self) -> List[str]:
        """Return one sentence per invalid field, with its name, its value and what is allowed."""
        return list(self._find_invalid_fields()) or list(self.find_conflicts())

    def _find_invalid_fields(self) -> Iterator[str]:
        """Yield a sentence per field whose type is not that of its default, or below its minimum.

        Types are int, float, bool or a tuple of ints.
        """
        allowed = {tuple: "a list of integers", bool: "true or false", float: "a number"}
        for field in dataclasses.fields(cast(Any, self)):
            kind, value = type(field.default), getattr(self, field.name)
            values = value if isinstance(value, tuple) else (value,)
            least = self.LEAST.get(field.name, 1)
            is_right = type(value) in ((int, float) if kind is float else (kind,))
            if not is_right or (kind is tuple and any(type(item) is not int for item in values)):
                yield f"{field.name} is {value!r}; allowed: {allowed.get(kind, 'an integer')}"
            elif kind in (int, tuple) and any(size < least for size in values):
                yield f"{field.name} is {value!r}; allowed: {least} or more"

    @abstractmethod
    def find_conflicts(self) -> Iterator[str]:
        """Yield sentences as `find_problems`, for fields that are valid alone but not together."""


class Transformer(Network):
    """Base class of models with attention, trained by AdamW at one rate for all batch sizes."""

    hidden_size: int
    heads: int

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.heads

    def find_conflicts(self) -> Iterator[str]:
        if self.hidden_size % self.heads:
            yield f"hidden_size is {self.hidden_size}; allowed: a multiple of heads ({self.heads})"


def list_linear(
    name: str, in_size: int, out_size: int, standard_deviation: float, has_bias: bool = True
) -> Iterator[Parameter]:
    """Yield a linear layer's weight [out_size, in_size] ~ N(0, standard_deviation^2) and bias 0."""
    yield Parameter(f"{name}.weight", (out_size, in_size), 0.0, standard_deviation)
    if has_bias:
        yield Parameter(f"{name}.bias", (out_size,), 0.0)


def list_normalization(name: str, size: int, has_bias: bool = True) -> Iterator[Parameter]:
    """Yield name, shape and initial value of a normalization's weight (1) and bias (0): [size]."""
    yield Parameter(f"{name}.weight", (size,), 1.0)
    if has_bias:
        yield Parameter(f"{name}.bias", (size,), 0.0)


def make_image_sample(random: RandomState, channels: int, image_size: int, classes: int) -> Arrays:
    """Make {"images": float32 [channel, height, width] ~ N(0, 1), "labels": int64 []}."""
    import numpy

    shape = (channels, image_size, image_size)
    return {
        "images": random.standard_normal(shape).astype(numpy.float32),
        "labels": numpy.array(random.randint(0, classes), numpy.int64),
    }


def list_models() -> List[str]:
    """Return the names of the models in this package, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load_model(name: str) -> Model:
    """Import a model's module.

    Raises ModuleNotFoundError for a name that is not in `list_models`.
    """
    return cast("Model", import_module(f"{__name__}.{name}"))


def find_fraction_problem(name: str, value: float) -> Iterator[str]:
    """Yield a sentence if the value of the field `name` is not in 0 <= value < 1."""
    if not 0 <= value < 1:
        yield f"{name} is {value}; allowed: 0 <= value < 1"
