"""matrix.toml -> a validated Matrix, or every mistake of the file in one answer."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Optional, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema

from dlperf_slurm.config import (
    Layer,
    OneOrMore,
    OneOrMoreTables,
    Reporter,
    Table,
    TomlFile,
    check_known,
    read_toml,
    validate,
)
from dlperf_slurm.errors import raise_problems
from dlperf_slurm.model_tables import check_models
from dlperf_slurm.site import find_layer_problems
from dlperf_slurm.topology import parse_topology
from dlperf_slurm.worker.frameworks import list_frameworks, load_adapter
from dlperf_slurm.worker.models import list_models

Item = TypeVar("Item")


def _list_choices(attribute: str) -> list[str]:
    """What the adapters together offer for an axis, in the order they declare it."""
    offers = (getattr(load_adapter(framework), attribute) for framework in list_frameworks())
    return list(dict.fromkeys(choice for offer in offers for choice in offer))


def _one_of(what: str, list_known: Callable[[], Sequence[str]]) -> AfterValidator:
    def check(value: str) -> str:
        return check_known(value, list_known(), what)

    return AfterValidator(check)


def _check_topology(text: str) -> str:
    parse_topology(text)
    return text


def _check_values(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("is empty; name at least one value")
    repeated = [value for index, value in enumerate(values) if value in values[:index]]
    if repeated:
        raise ValueError(f"{repeated[0]!r} is listed twice, which would make duplicate cases")
    return values


PositiveInt = Annotated[int, Field(ge=1)]
Framework = Annotated[str, _one_of("a framework", list_frameworks)]
Model = Annotated[str, _one_of("a model", list_models)]
TopologyName = Annotated[str, AfterValidator(_check_topology)]
Precision = Annotated[str, _one_of("a precision", lambda: _list_choices("PRECISIONS"))]
Compiler = Annotated[str, _one_of("a compiler", lambda: _list_choices("COMPILERS"))]
MemoryFormat = Annotated[str, _one_of("a memory format", lambda: _list_choices("MEMORY_FORMATS"))]
Distribution = Annotated[str, _one_of("a distribution", lambda: _list_choices("DISTRIBUTIONS"))]
Values = Annotated[OneOrMore[Item], AfterValidator(_check_values)]


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


BoundOrNumber = Annotated[
    Bound, BeforeValidator(_parse_bound), WithJsonSchema({"type": ["integer", "string"]})
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
    distribution: Values[Distribution] = ()
    clip_global_norm: Values[bool] = ()
    batch_size_per_device: Values[BoundOrNumber] = ()
    nodes: Values[BoundOrNumber] = ()
    devices_per_node: Values[BoundOrNumber] = ()
    world_size: Values[BoundOrNumber] = ()


class Selection(Table):
    """Values for some of the axes; an axis that is not named is an empty tuple."""

    framework: Values[Framework] = ()
    topology: Values[TopologyName] = ()
    batch_size_per_device: Values[PositiveInt] = ()
    precision: Values[Precision] = ()
    compiler: Values[Compiler] = ()
    memory_format: Values[MemoryFormat] = ()
    distribution: Values[Distribution] = ()
    clip_global_norm: Values[bool] = ()

    def named_axes(self) -> tuple[str, ...]:
        return tuple(axis for axis in AXES if getattr(self, axis))


AXES = tuple(Selection.model_fields)


class Axes(Selection):
    """Everything that is varied; the cases are the product of the lists."""

    framework: Values[Framework]
    topology: Values[TopologyName]
    batch_size_per_device: Values[PositiveInt]
    precision: Values[Precision] = ("fp32",)
    compiler: Values[Compiler] = ("none",)
    memory_format: Values[MemoryFormat] = ("default",)
    distribution: Values[Distribution] = ("native",)
    clip_global_norm: Values[bool] = (False,)


class Protocol(Table):
    """How a case is measured; the defaults are those of DLPerf.

    `shuffle_seed` orders the array tasks; `seed` makes weights and synthetic data.
    """

    repeats: PositiveInt = 7
    warmup_steps: Annotated[int, Field(ge=0)] = 20
    measured_steps: PositiveInt = 100
    shuffle_seed: Annotated[int, Field(ge=0)] = 0
    seed: Annotated[int, Field(ge=0)] = 1


class ProtocolOverride(Table):
    """The parts of the protocol that some cases have otherwise."""

    repeats: Optional[PositiveInt] = None
    warmup_steps: Optional[Annotated[int, Field(ge=0)]] = None
    measured_steps: Optional[PositiveInt] = None


class ModelTable(Table):
    """A model by name, and its sizes where they differ from the published ones."""

    model_config = ConfigDict(extra="allow")

    name: Model

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.__pydantic_extra__ or {}


def _check_models_differ(models: tuple[ModelTable, ...]) -> tuple[ModelTable, ...]:
    _check_values(tuple(model.name for model in models))
    return models


class Inclusion(Selection):
    """Cases beside the product: of all models and values of the axes that are not named."""

    model: Values[Model] = ()


class Override(Selection):
    """Other values for the cases that `when` describes."""

    when: Condition
    model: dict[str, Any] = {}
    protocol: ProtocolOverride = ProtocolOverride()


class Exclusion(Table):
    """Cases that are left out, and why; the reason is printed in their place in the tables."""

    when: Condition
    reason: str = "excluded by the matrix"


class Note(Table):
    """A footnote for the table cells of the cases that `when` describes."""

    when: Condition
    text: Annotated[str, Field(min_length=1)]


class Matrix(Table):
    """A whole matrix file."""

    title: str = ""
    model: Annotated[OneOrMoreTables[ModelTable], AfterValidator(_check_models_differ)]
    axes: Axes
    protocol: Protocol = Protocol()
    include: OneOrMore[Inclusion] = ()
    exclude: OneOrMore[Exclusion] = ()
    override: OneOrMore[Override] = ()
    note: OneOrMore[Note] = ()
    slurm: dict[str, Any] = {}


@dataclass(frozen=True)
class MatrixFile:
    """A matrix with the file it came from; its name is the file's, without `.toml`."""

    name: str
    toml: TomlFile
    matrix: Matrix


def read_matrix(path: Path) -> MatrixFile:
    """Read and check a matrix file; InputError with all of its mistakes."""
    toml = read_toml(path)
    reporter = Reporter(toml)
    matrix = validate(Matrix, toml.data, reporter)
    check_models(toml.data, reporter)
    if isinstance(toml.data.get("slurm"), dict):
        reporter.problems += find_layer_problems(Layer(toml, ("slurm",)))
    if matrix is not None:
        _check_overrides(matrix, reporter)
    raise_problems(reporter.problems)
    assert matrix is not None, "no matrix without a problem"
    return MatrixFile(path.stem, toml, matrix)


def _check_overrides(matrix: Matrix, reporter: Reporter) -> None:
    overridden = {axis for override in matrix.override for axis in override.named_axes()}
    for index, override in enumerate(matrix.override):
        if not override.named_axes():
            continue
        for axis in sorted(overridden & override.when.model_fields_set):
            reporter.add(
                ("override", index, "when", axis),
                f"{axis} is itself set by an override, so that it cannot decide about another "
                "axis; use include and exclude for such cases",
            )
