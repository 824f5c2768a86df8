"""The axes of a matrix: what their values may be, and conditions on them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, Union

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
)

from dlperf_slurm.config.toml_tables import OneOrMore, Table, check_known
from dlperf_slurm.contract.axes import (
    DATA_SOURCES,
    DEFAULT_OPTIMIZER,
    MODES,
    ON_DEVICE,
    OPTIMIZERS,
    TRAIN,
    WORKER,
)
from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.matrix.batch_size import (
    BatchSearch,
    BatchSize,
    parse_batch_search,
    parse_batch_size,
)
from dlperf_slurm.worker.frameworks import list_frameworks, load_adapter
from dlperf_slurm.worker.models import list_models

Item = TypeVar("Item")

DYNAMIC = "dynamic"
# of `topology`, in conditions
TOPOLOGY_PARTS = ("nodes", "devices_per_node", "world_size")
# how tf_cnn_benchmarks calls our "native", an all-reduce by the framework's own means
REPLICATED = "replicated"


def _list_choices(attribute: str) -> list[str]:
    """What the adapters together offer for an axis, in the order they declare it."""
    offers = (getattr(load_adapter(framework), attribute) for framework in list_frameworks())
    return list(dict.fromkeys(choice for offer in offers for choice in offer))


def one_of(what: str, list_known: Callable[[], Sequence[str]]) -> AfterValidator:
    def check(value: str) -> str:
        return check_known(value, list_known(), what)

    return AfterValidator(check)


def _check_topology(text: str) -> str:
    parse_topology(text)
    return text


def check_values(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("is empty; name at least one value")
    repeated = [value for index, value in enumerate(values) if value in values[:index]]
    if repeated:
        raise ValueError(f"{repeated[0]!r} is listed twice, which would make duplicate cases")
    return values


def _name_distribution(value: Any) -> Any:
    return "native" if value == REPLICATED else value


def _check_loss_scale(value: Any) -> Union[int, str]:
    if value == DYNAMIC or (type(value) is int and value >= 1):
        return str(value) if value == DYNAMIC else int(value)
    raise ValueError(f"{value!r} is neither {DYNAMIC!r} nor a whole number of 1 or more")


PositiveInt = Annotated[int, Field(ge=1)]
Framework = Annotated[str, one_of("a framework", list_frameworks)]
Model = Annotated[str, one_of("a model", list_models)]
TopologyName = Annotated[str, AfterValidator(_check_topology)]
Precision = Annotated[str, one_of("a precision", lambda: _list_choices("PRECISIONS"))]
Compiler = Annotated[str, one_of("a compiler", lambda: _list_choices("COMPILERS"))]
MemoryFormat = Annotated[str, one_of("a memory format", lambda: _list_choices("MEMORY_FORMATS"))]
Distribution = Annotated[
    str,
    BeforeValidator(_name_distribution),
    one_of("a distribution", lambda: _list_choices("DISTRIBUTIONS")),
]
Data = Annotated[str, one_of("a data source", lambda: DATA_SOURCES)]
Optimizer = Annotated[str, one_of("an optimizer", lambda: OPTIMIZERS)]
LossScale = Annotated[
    Union[int, str],
    PlainValidator(_check_loss_scale),
    WithJsonSchema({"type": ["integer", "string"], "minimum": 1}),
]
Mode = Annotated[str, one_of("a mode", lambda: MODES)]
AnyBatchSize = Annotated[
    BatchSize,
    PlainValidator(parse_batch_size),
    WithJsonSchema({"type": ["integer", "string"], "minimum": 1}),
]
Values = Annotated[OneOrMore[Item], AfterValidator(check_values)]
# tf_cnn_benchmarks' word for the same axis
OR_UPDATE = AliasChoices("distribution", "update")


@dataclass(frozen=True)
class Bound:
    """A number to compare with: 256, or ">=256" with one of the operators < <= > >= !=."""

    operator: str
    number: int

    def holds(self, value: int) -> bool:
        return {
            "=": value == self.number,
            "!=": value != self.number,
            "<": value < self.number,
            "<=": value <= self.number,
            ">": value > self.number,
            ">=": value >= self.number,
        }[self.operator]


def _parse_bound(value: Any) -> Bound:
    if type(value) is int:
        return Bound("=", value)
    match = re.fullmatch(r"(<=|>=|!=|<|>)\s*(\d+)", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is neither a number nor a comparison such as '>=256'")
    return Bound(match[1], int(match[2]))


def _parse_batch_bound(value: Any) -> Union[Bound, BatchSearch]:
    search = parse_batch_search(value) if isinstance(value, str) else None
    return search or _parse_bound(value)


_NUMBER_OR_TEXT = WithJsonSchema({"type": ["integer", "string"]})
BoundOrNumber = Annotated[Bound, BeforeValidator(_parse_bound), _NUMBER_OR_TEXT]
BatchBound = Annotated[
    Union[Bound, BatchSearch], PlainValidator(_parse_batch_bound), _NUMBER_OR_TEXT
]


class Condition(Table):
    """Cases that have, on each axis named here, one of the values; ">=256" for numbers."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    model: Values[Model] = ()
    framework: Values[Framework] = ()
    topology: Values[TopologyName] = ()
    precision: Values[Precision] = ()
    compiler: Values[Compiler] = ()
    memory_format: Values[MemoryFormat] = ()
    distribution: Values[Distribution] = Field((), validation_alias=OR_UPDATE)
    clip_global_norm: Values[bool] = ()
    mode: Values[Mode] = ()
    source: Values[str] = ()
    data: Values[Data] = ()
    optimizer: Values[Optimizer] = ()
    loss_scale: Values[LossScale] = ()
    data_workers: Values[BoundOrNumber] = ()
    prefetch_batches: Values[BoundOrNumber] = ()
    gradient_accumulation: Values[BoundOrNumber] = ()
    batch_size_per_device: Values[BatchBound] = ()
    nodes: Values[BoundOrNumber] = ()
    devices_per_node: Values[BoundOrNumber] = ()
    world_size: Values[BoundOrNumber] = ()


class Selection(Table):
    """Values for some of the axes; an axis that is not named is an empty tuple."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    framework: Values[Framework] = ()
    topology: Values[TopologyName] = ()
    batch_size_per_device: Values[AnyBatchSize] = ()
    precision: Values[Precision] = ()
    compiler: Values[Compiler] = ()
    memory_format: Values[MemoryFormat] = ()
    distribution: Values[Distribution] = Field((), validation_alias=OR_UPDATE)
    clip_global_norm: Values[bool] = ()
    mode: Values[Mode] = ()
    source: Values[str] = ()
    data: Values[Data] = ()
    data_workers: Values[PositiveInt] = ()
    prefetch_batches: Values[PositiveInt] = ()
    optimizer: Values[Optimizer] = ()
    gradient_accumulation: Values[PositiveInt] = ()
    loss_scale: Values[LossScale] = ()

    def named_axes(self) -> tuple[str, ...]:
        return tuple(axis for axis in AXES if getattr(self, axis))


AXES = tuple(Selection.model_fields)


class Axes(Selection):
    """Everything that is varied; the cases are the product of the lists."""

    framework: Values[Framework]
    topology: Values[TopologyName]
    batch_size_per_device: Values[AnyBatchSize]
    precision: Values[Precision] = ("fp32",)
    compiler: Values[Compiler] = ("none",)
    memory_format: Values[MemoryFormat] = ("default",)
    distribution: Values[Distribution] = Field(("native",), validation_alias=OR_UPDATE)
    clip_global_norm: Values[bool] = (False,)
    mode: Values[Mode] = (TRAIN,)
    source: Values[str] = (WORKER,)
    data: Values[Data] = (ON_DEVICE,)
    data_workers: Values[PositiveInt] = (1,)
    prefetch_batches: Values[PositiveInt] = (2,)
    optimizer: Values[Optimizer] = (DEFAULT_OPTIMIZER,)
    gradient_accumulation: Values[PositiveInt] = (1,)
    loss_scale: Values[LossScale] = (DYNAMIC,)
