"""Pydantic models of the tables of a matrix file."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    create_model,
    model_validator,
)

from dlperf_slurm.config.suggestions import check_env_name
from dlperf_slurm.config.toml_tables import OneOrMore, OneOrMoreTables, TomlModel
from dlperf_slurm.contract.case import NO_TRAINING, Training
from dlperf_slurm.matrix.axes import AXES, AXIS_SPECS, DEFAULTS
from dlperf_slurm.matrix.value_types import BoundOrNumber, Model, PositiveInt
from dlperf_slurm.worker.models import load_model

Item = TypeVar("Item")

# the parts of `topology` that can be keys of conditions
TOPOLOGY_PARTS = {
    "nodes": "Number of nodes of the topology.",
    "devices_per_node": "Number of devices on each node of the topology.",
    "world_size": "Number of devices of the topology; there is one rank per device.",
}

# defaults in a matrix; a batch size of 0 follows from the global one, or is missing
OPTIONAL = {**DEFAULTS, "batch_size_per_device": 0}

# maximum number of values of an axis
MAX_VALUES = 1_000


def check_values(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values of an axis unchanged; raise ValueError if none, or if two are equal."""
    if not values:
        raise ValueError("is an empty list; give at least one value")
    repeated = next((value for value, count in Counter(values).items() if count > 1), None)
    if repeated is not None:
        raise ValueError(
            f"{repeated!r} is in the list twice, which would make duplicate cases; remove one"
        )
    return values


def _check_length(values: Any) -> Any:
    # checked before each value is compared with all known names
    if isinstance(values, list) and len(values) > MAX_VALUES:
        raise ValueError(f"has {len(values)} values; at most {MAX_VALUES} are allowed")
    return values


Values = Annotated[OneOrMore[Item], AfterValidator(check_values), BeforeValidator(_check_length)]


class AxisTable(TomlModel):
    """Values of axes; an axis that is not named is an empty tuple."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    def named_axes(self) -> tuple[str, ...]:
        """Return the axes that the table names, in the order of AXES."""
        return tuple(axis for axis in AXES if self.get_values(axis))

    def get_values(self, axis: str) -> tuple[Any, ...]:
        """Return the values that the table has for an axis; () if it does not name the axis."""
        values: tuple[Any, ...] = getattr(self, axis)
        return values


def _make_field(kind: Any, description: str, default: Any = ()) -> tuple[Any, Any]:
    """Return the pydantic field of an axis, as (type, field), for a table of axes."""
    return Values[kind], Field(default, description=description)


if TYPE_CHECKING:
    # the real classes get their fields from AXIS_SPECS; only `get_values` reads them

    class Condition(AxisTable): ...

    class Selection(AxisTable): ...

    class AxesTable(Selection): ...

else:
    Condition = create_model(
        "Condition",
        __base__=AxisTable,
        __doc__='Cases that have one of these values on each axis named here; ">=256" '
        "stands for all numbers from 256 on.",
        model=_make_field(str, "Name of a model: one of this tool, or the model of a script."),
        **{s.name: _make_field(s.bound or s.kind, s.description) for s in AXIS_SPECS},
        **{part: _make_field(BoundOrNumber, text) for part, text in TOPOLOGY_PARTS.items()},
    )
    Selection = create_model(
        "Selection",
        __base__=AxisTable,
        __doc__="Values for some of the axes; axes that are not named are empty tuples.",
        **{s.name: _make_field(s.kind, s.description) for s in AXIS_SPECS},
    )
    AxesTable = create_model(
        "AxesTable",
        __base__=Selection,
        __doc__="Lists of values for each axis; the cases are all combinations.",
        **{
            s.name: _make_field(
                s.kind, s.description, (OPTIONAL[s.name],) if s.name in OPTIONAL else ...
            )
            for s in AXIS_SPECS
        },
    )


# pattern for the name of a sample of an external script's own model, such as "images"
UNIT = r"^([A-Za-z][A-Za-z_-]{0,31})?$"
# a model of an external script, as a part of a case's name
OWN_MODEL = r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,63})?$"
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Protocol(TomlModel):
    """How a case is measured; the defaults are those of DLPerf."""

    repeats: PositiveInt = 7
    """Number of repeats of each case, each in an array task of its own; tables show the median."""
    blocks: PositiveInt = 1
    """Number of array jobs, run one after the other, over which the repeats are spread."""
    warmup_steps: Annotated[int, Field(ge=0)] = 20
    """Warm-up steps before the measured ones; their times are not used."""
    measured_steps: PositiveInt = 100
    """Number of measured steps."""
    min_warmup_seconds: Seconds = 0.0
    """Minimum duration of the warm-up, without its first step; more steps are run if needed."""
    min_measured_seconds: Seconds = 0.0
    """Minimum duration of the measured steps; warm-up step times decide if more are needed."""
    shuffle_seed: Annotated[int, Field(ge=0)] = 0
    """Seed for the random order of array tasks."""
    seed: Annotated[int, Field(ge=0)] = 1
    """Seed for weights and synthetic data."""
    batch_size_step: PositiveInt = 8
    """Step size of the search for the largest batch size."""
    memory_limit_mib_per_device: Optional[PositiveInt] = None
    """Limit of a rank's peak memory on its device, in MiB; more counts as out of memory."""
    telemetry_interval_seconds: Seconds = 0.5
    """Interval between samples of power, clocks and memory; 0 switches sampling off."""
    stall_seconds: Optional[Seconds] = None
    """Fail a case as stalled if no step ends for this time; 0 switches this check off.

    Default: 20 times the longest step so far, at least 60 s (docs/how-it-works.md).
    """


class ProtocolOverride(TomlModel):
    """Other values of the protocol for the cases of an [[override]] table."""

    repeats: Optional[PositiveInt] = None
    """Repeats of each of these cases."""
    warmup_steps: Optional[Annotated[int, Field(ge=0)]] = None
    """Warm-up steps before the measured ones."""
    measured_steps: Optional[PositiveInt] = None
    """Number of measured steps."""
    min_warmup_seconds: Optional[Seconds] = None
    """Minimum duration of the warm-up, without its first step."""
    min_measured_seconds: Optional[Seconds] = None
    """Minimum duration of the measured steps."""
    stall_seconds: Optional[Seconds] = None
    """Fail one of these cases as stalled if no step ends for this time; 0: no such check."""


class TrainingTable(TomlModel):
    """Training to accuracy instead of a number of steps: `contract.Training` has the terms.

    Cases of mode "train" then run `epochs` over the data set, or stop after the first one that
    reaches `target_top1`; each repeat has a seed of its own, counted from the protocol's.
    """

    epochs: Annotated[int, Field(ge=0)] = 0
    """Number of epochs to train; with 0, a number of steps is measured instead."""
    target_top1: Optional[Annotated[float, Field(gt=0, le=1)]] = None
    """Top-1 accuracy on the validation samples at which training stops."""
    learning_rate: Optional[Annotated[float, Field(gt=0)]] = None
    """Learning rate after the warm-up; default: the learning rate of the model."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Learning-rate schedule after the warm-up."""
    warmup_epochs: Annotated[float, Field(ge=0)] = 0.0
    """Epochs over which the learning rate rises from 0."""
    mixup_alpha: Annotated[float, Field(ge=0)] = 0.0
    """Alpha of mixup; 0 switches mixup off."""

    @model_validator(mode="after")
    def _check_warmup(self) -> "TrainingTable":
        if self.epochs and self.warmup_epochs >= self.epochs:
            raise ValueError(
                f"warmup_epochs is {self.warmup_epochs}; allowed: less than epochs ({self.epochs})"
            )
        return self

    def as_contract(self) -> Training:
        """Return the table as the worker reads it; NO_TRAINING if it does not set `epochs`."""
        if not self.epochs:
            return NO_TRAINING
        return Training(
            epochs=self.epochs,
            target_top1=self.target_top1 or 0.0,
            learning_rate=self.learning_rate or 0.0,
            schedule=self.schedule,
            warmup_epochs=self.warmup_epochs,
            mixup_alpha=self.mixup_alpha,
        )


class ModelTable(TomlModel):
    """A model by name, and the sizes that differ from the published ones."""

    model_config = ConfigDict(extra="allow")

    name: Model
    """Name of the model."""
    preset: str = ""
    """Name of a published model size; the other keys of the table override its parameters."""
    dataset: str = ""
    """Name of the data set that the data sources "folder" and "dali" read."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The model parameters of the preset and the table, by name; others have defaults."""
        preset = load_model(self.name).PRESETS[self.preset] if self.preset else {}
        return {**preset, **(self.__pydantic_extra__ or {})}


def _check_models_differ(models: tuple[ModelTable, ...]) -> tuple[ModelTable, ...]:
    check_values(tuple(model.name for model in models))
    return models


class ScriptTable(TomlModel):
    """An external script that runs a case, and how its log is read.

    `command` is lines of bash, a Jinja2 template over the case (docs/matrix.md lists its values),
    run in the framework's environment: `launch` "single", on the first node, for a script that
    starts its ranks itself, or "per-rank", by the launcher.
    """

    command: Annotated[str, Field(min_length=1)]
    """Bash code, as a Jinja2 template with the values of a case."""
    format: str
    """Format of the log that the script prints: a format of this tool, or a key of [formats]."""
    model: Annotated[str, Field(pattern=OWN_MODEL)] = ""
    """Name of the script's model, if it is not one of this tool's models; replaces [model]."""
    unit: Annotated[str, Field(pattern=UNIT)] = ""
    """Unit of a sample of this model, such as "sequences", for figures in sequences/s."""
    tokens_per_sample: Optional[PositiveInt] = None
    """Number of tokens in a sample of this model; adds figures in tokens/s."""
    flops_per_sample: Optional[Annotated[float, Field(gt=0, le=1e18)]] = None
    """Floating-point operations of a sample's forward pass; training counts 3 times as many."""
    rule: str = ""
    """Name of the rule by which the publisher computes the throughput."""
    launch: Literal["single", "per-rank"] = "single"
    """With "single" the script starts its ranks; with "per-rank" the launcher starts each rank."""
    env: dict[Annotated[str, AfterValidator(check_env_name)], str] = {}
    """Environment variables of the script."""


class Inclusion(Selection):
    """Additional cases; a model or axis that is not named takes all its values."""

    model: Values[Model] = ()
    """Models of the additional cases; default: all."""


class Override(Selection):
    """Other values for the cases that `when` describes."""

    when: Condition
    """Cases to change: those that have these values."""
    model: dict[str, Any] = {}
    """Model parameters of these cases."""
    protocol: ProtocolOverride = ProtocolOverride()
    """How these cases are measured, in place of `[protocol]`."""


class Exclusion(TomlModel):
    """Cases that are left out; the tables print the reason in their place."""

    when: Condition
    """Cases to leave out."""
    reason: str = "excluded by the matrix"
    """Reason that the tables print in place of results."""


class Note(TomlModel):
    """A footnote for the table cells of the cases that `when` describes."""

    when: Condition
    """Cases that get the footnote in tables."""
    text: Annotated[str, Field(min_length=1)]
    """Text of the footnote."""


class Matrix(TomlModel):
    """A whole matrix file."""

    title: str = ""
    """Title of the report."""
    model: Annotated[OneOrMoreTables[ModelTable], AfterValidator(_check_models_differ)] = ()
    """Models, with the parameters that differ from the defaults; not needed with `axes.script`."""
    axes: AxesTable
    """Settings to vary."""
    protocol: Protocol = Protocol()
    """How each case is measured."""
    training: TrainingTable = TrainingTable()
    """Training to an accuracy instead of a number of steps."""
    include: OneOrMore[Inclusion] = ()
    """Cases in addition to the combinations of the axes."""
    exclude: OneOrMore[Exclusion] = ()
    """Cases to leave out."""
    override: OneOrMore[Override] = ()
    """Settings that replace those of the axes, the model or the protocol for some cases."""
    note: OneOrMore[Note] = ()
    """Footnotes for some cases."""
    scripts: dict[str, ScriptTable] = {}
    """External scripts, by the name that the axis `script` uses."""
    formats: dict[str, dict[str, Any]] = {}
    """Log formats of external scripts, by the name that `format` of a script uses."""
    slurm: dict[str, Any] = {}
    """Settings that replace those of the site file for this matrix."""
