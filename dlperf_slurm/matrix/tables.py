"""The tables of a matrix file, as pydantic checks them."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Optional

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from dlperf_slurm.config.known_names import check_env_name
from dlperf_slurm.config.toml_tables import OneOrMore, OneOrMoreTables, Table
from dlperf_slurm.contract.case import NO_TRAINING, Training
from dlperf_slurm.logs import list_formats
from dlperf_slurm.matrix.selections import AxesTable, Condition, Selection, Values, check_values
from dlperf_slurm.matrix.values import Model, OneOf, PositiveInt
from dlperf_slurm.worker.models import load_model


class Protocol(Table):
    """How a case is measured; the defaults are those of DLPerf."""

    repeats: PositiveInt = 7
    """Independent array tasks of each case; the median over them is reported."""
    blocks: PositiveInt = 1
    """Array jobs, one after the other, over which the repeats of each case are spread."""
    warmup_steps: Annotated[int, Field(ge=0)] = 20
    """Steps before the measured ones, kept apart."""
    measured_steps: PositiveInt = 100
    """Steps of the measured window."""
    shuffle_seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the order of array tasks."""
    seed: Annotated[int, Field(ge=0)] = 1
    """Seed of weights and of synthetic data."""
    batch_size_step: PositiveInt = 8
    """Step of a search for the largest batch size."""
    memory_limit_mib_per_device: Optional[PositiveInt] = None
    """Memory of a rank, in MiB, above which it counts as out of memory."""
    telemetry_interval_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.5
    """Time between samples of power, clocks and memory; 0 is none."""
    stall_seconds: Optional[Annotated[float, Field(ge=0, allow_inf_nan=False)]] = None
    """Time without a step after which a case has failed as stalled; 0 is never.

    Where it is left out, the pace of the warm-up says how long is too long.
    """


class ProtocolOverride(Table):
    """The parts of the protocol that some cases have otherwise."""

    repeats: Optional[PositiveInt] = None
    """Independent array tasks of each of these cases."""
    warmup_steps: Optional[Annotated[int, Field(ge=0)]] = None
    """Steps before the measured ones."""
    measured_steps: Optional[PositiveInt] = None
    """Steps of the measured window."""
    stall_seconds: Optional[Annotated[float, Field(ge=0, allow_inf_nan=False)]] = None
    """Time without a step after which one of these cases has failed; 0 is never."""


class TrainingTable(Table):
    """Training to accuracy instead of a number of steps: `contract.Training` has the terms.

    Cases of mode "train" then run `epochs` over the data set, or stop after the first one that
    reaches `target_top1`; each repeat has a seed of its own, counted from the protocol's.
    """

    epochs: Annotated[int, Field(ge=0)] = 0
    """Passes over the data set; 0 measures steps instead."""
    target_top1: Optional[Annotated[float, Field(gt=0, le=1)]] = None
    """Fraction of right validation samples after which a training stops."""
    learning_rate: Optional[Annotated[float, Field(gt=0)]] = None
    """Learning rate after the warm-up; the model's own where it is left out."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Course of the learning rate after the warm-up."""
    warmup_epochs: Annotated[float, Field(ge=0)] = 0.0
    """Epochs over which the learning rate rises from 0."""
    mixup_alpha: Annotated[float, Field(ge=0)] = 0.0
    """Parameter of mixup; 0 is none."""

    @model_validator(mode="after")
    def _check_warmup(self) -> "TrainingTable":
        if self.epochs and self.warmup_epochs >= self.epochs:
            raise ValueError(
                f"warmup_epochs is {self.warmup_epochs}; allowed: less than epochs, {self.epochs}"
            )
        return self

    def as_contract(self) -> Training:
        """The table as the worker reads it."""
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


class ModelTable(Table):
    """A model by name, and its sizes where they differ from the published ones."""

    model_config = ConfigDict(extra="allow")

    name: Model
    """Model, by its name."""
    preset: str = ""
    """Published size by its name, from which the other keys of the table differ."""
    dataset: str = ""
    """Name of the real files that the data sources "folder" and "dali" read."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """All sizes that are not the model's defaults."""
        preset = load_model(self.name).PRESETS[self.preset] if self.preset else {}
        return {**preset, **(self.__pydantic_extra__ or {})}


def _check_models_differ(models: tuple[ModelTable, ...]) -> tuple[ModelTable, ...]:
    check_values(tuple(model.name for model in models))
    return models


class ScriptTable(Table):
    """Somebody else's script that runs a case, and how its log is read.

    `command` is lines of bash, a Jinja2 template over the case (docs/matrix.md lists its
    values), run in the framework's environment: `launch` "single", on the first node, for a script
    that starts its ranks itself, or "per-rank", by the launcher.
    """

    command: Annotated[str, Field(min_length=1)]
    """Lines of bash, as a Jinja2 template over the values of a case."""
    format: Annotated[str, OneOf("a log format", list_formats)]
    """Format of the log that the script prints."""
    rule: str = ""
    """Name of the publisher's rule for its figure."""
    launch: Literal["single", "per-rank"] = "single"
    """Whether one process starts the ranks itself, or the launcher starts one for each."""
    env: dict[Annotated[str, AfterValidator(check_env_name)], str] = {}
    """Environment variables of the script."""


class Inclusion(Selection):
    """Cases beside the product: of all models and values of the axes that are not named."""

    model: Values[Model] = ()
    """Models of the cases beside the product; all, where it is left out."""


class Override(Selection):
    """Other values for the cases that `when` describes."""

    when: Condition
    """Cases that have these values."""
    model: dict[str, Any] = {}
    """Parameters of the model in these cases."""
    protocol: ProtocolOverride = ProtocolOverride()
    """Protocol of these cases."""


class Exclusion(Table):
    """Cases that are left out, and why; the reason is printed in their place in the tables."""

    when: Condition
    """Cases that are left out."""
    reason: str = "excluded by the matrix"
    """Reason that the tables print in their place."""


class Note(Table):
    """A footnote for the table cells of the cases that `when` describes."""

    when: Condition
    """Cases whose cells have the footnote."""
    text: Annotated[str, Field(min_length=1)]
    """Text of the footnote."""


class Matrix(Table):
    """A whole matrix file."""

    title: str = ""
    """Title of the report."""
    model: Annotated[OneOrMoreTables[ModelTable], AfterValidator(_check_models_differ)]
    """Models, with their sizes where these differ from the published ones."""
    axes: AxesTable
    """Everything that is varied."""
    protocol: Protocol = Protocol()
    """How a case is measured."""
    training: TrainingTable = TrainingTable()
    """Training to accuracy instead of a number of steps."""
    include: OneOrMore[Inclusion] = ()
    """Cases beside the product of the axes."""
    exclude: OneOrMore[Exclusion] = ()
    """Cases that are left out."""
    override: OneOrMore[Override] = ()
    """Other values for some cases."""
    note: OneOrMore[Note] = ()
    """Footnotes of some cases."""
    scripts: dict[str, ScriptTable] = {}
    """Other people's scripts, by the name that the axis `script` has."""
    slurm: dict[str, Any] = {}
    """Settings of the site for this matrix."""
