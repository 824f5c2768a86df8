"""matrix.toml -> a validated Matrix, or every mistake of the file in one answer."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from dlperf_slurm.config.known_names import check_known
from dlperf_slurm.config.site import find_layer_problems
from dlperf_slurm.config.toml_tables import (
    Layer,
    OneOrMore,
    OneOrMoreTables,
    Reporter,
    Table,
    TomlFile,
    read_toml,
    validate,
)
from dlperf_slurm.contract.axes import WORKER
from dlperf_slurm.contract.case import NO_TRAINING, Training
from dlperf_slurm.errors import raise_problems
from dlperf_slurm.logs import list_formats, load_format
from dlperf_slurm.matrix.model_parameters import check_models
from dlperf_slurm.matrix.old_words import Modernized, modernize
from dlperf_slurm.matrix.selections import (
    TOPOLOGY_PARTS,
    AxesTable,
    AxisTable,
    Condition,
    Selection,
    Values,
    check_values,
)
from dlperf_slurm.matrix.values import Model, OneOf, PositiveInt


class Protocol(Table):
    """How a case is measured; the defaults are those of DLPerf.

    `shuffle_seed` orders the array tasks; `seed` makes weights and synthetic data. A search for the
    largest batch size goes in steps of `batch_size_step`; a rank that needed more memory than
    `memory_limit_mib_per_device` counts as out of memory. Beside the measured steps a
    sample of power, clocks and memory is taken every `telemetry_interval_seconds`; 0 is none. An
    array task in which no step ends for `stall_seconds` fails as stalled; where these are left out,
    the pace of the warm-up says how long is too long, and 0 lets it hang.
    """

    repeats: PositiveInt = 7
    """Independent array tasks of each case; the median over them is reported."""
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
    telemetry_interval_seconds: Annotated[float, Field(ge=0)] = 0.5
    """Time between samples of power, clocks and memory; 0 is none."""
    stall_seconds: Optional[Annotated[float, Field(ge=0)]] = None
    """Time without a step after which a case has failed; 0 is never."""


class ProtocolOverride(Table):
    """The parts of the protocol that some cases have otherwise."""

    repeats: Optional[PositiveInt] = None
    """Independent array tasks of each of these cases."""
    warmup_steps: Optional[Annotated[int, Field(ge=0)]] = None
    """Steps before the measured ones."""
    measured_steps: Optional[PositiveInt] = None
    """Steps of the measured window."""
    stall_seconds: Optional[Annotated[float, Field(ge=0)]] = None
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
    """A model by name, and its sizes where they differ from the published ones.

    `dataset` is the name of the real files that data sources "folder" and "dali" read.
    """

    model_config = ConfigDict(extra="allow")

    name: Model
    """Model, by its name."""
    dataset: str = ""
    """Name of the data set that data sources with real files read."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.__pydantic_extra__ or {}


def _check_models_differ(models: tuple[ModelTable, ...]) -> tuple[ModelTable, ...]:
    check_values(tuple(model.name for model in models))
    return models


class ScriptTable(Table):
    """Somebody else's script that runs a case, and how its log is read.

    `command` is lines of bash, a Jinja2 template over the case (docs/how-it-works.md lists its
    values), run in the framework's environment: `launch` "single", on the first node, for a script
    that starts its ranks itself, or "per-rank", by the launcher. `format` is that of the log that
    it prints, `rule` the name of the publisher's rule for its figure.
    """

    command: Annotated[str, Field(min_length=1)]
    """Lines of bash, as a Jinja2 template over the values of a case."""
    format: Annotated[str, OneOf("a log format", list_formats)]
    """Format of the log that the script prints."""
    rule: str = ""
    """Name of the publisher's rule for its figure."""
    launch: Literal["single", "per-rank"] = "single"
    """Whether one process starts the ranks itself, or the launcher starts one for each."""
    env: dict[str, str] = {}
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


@dataclass(frozen=True)
class MatrixFile:
    """A matrix with the file it came from; its name is the file's, without `.toml`."""

    name: str
    toml: TomlFile
    matrix: Matrix


def read_matrix(path: Path) -> MatrixFile:
    """Read and check a matrix file.

    Words that were renamed are read by their former names, and told on standard error. Raises
    InputError with all mistakes of the file.
    """
    modernized = modernize(read_toml(path))
    toml = modernized.toml
    _warn(modernized)
    reporter = Reporter(toml)
    for key, message in modernized.problems:
        reporter.add(key, message)
    matrix = validate(Matrix, toml.data, reporter)
    check_models(toml.data, reporter)
    if isinstance(toml.data.get("slurm"), dict):
        reporter.problems += find_layer_problems(Layer(toml, ("slurm",)))
    if matrix is not None:
        _check_overrides(matrix, reporter)
        _check_scripts(matrix, reporter)
    raise_problems(reporter.problems)
    assert matrix is not None, "no matrix without a problem"
    return MatrixFile(path.stem, toml, matrix)


def _warn(modernized: Modernized) -> None:
    """Print a warning for each former word, with the place where it is first."""
    reporter = Reporter(modernized.toml)
    seen: set[str] = set()
    for key, message in modernized.warnings:
        if message not in seen:
            reporter.add(key, message)
            seen.add(message)
    for problem in reporter.problems:
        print(f"warning: {problem}", file=sys.stderr)


def _check_overrides(matrix: Matrix, reporter: Reporter) -> None:
    overridden = {axis for override in matrix.override for axis in override.named_axes()}
    if "topology" in overridden:
        overridden |= set(TOPOLOGY_PARTS)
    for index, override in enumerate(matrix.override):
        if not override.named_axes():
            continue
        for axis in sorted(overridden & override.when.model_fields_set):
            reporter.add(
                ("override", index, "when", axis),
                f"{axis} is itself set by an override, so that it cannot decide about another "
                "axis; use include and exclude for such cases",
            )


def _check_scripts(matrix: Matrix, reporter: Reporter) -> None:
    """Report the names of scripts that are mistakes, which only the whole file can tell."""
    known = [WORKER, *matrix.scripts]
    for name in matrix.scripts:
        if name == WORKER:
            reporter.add(("scripts", name), f"{name!r} is this tool's own; choose another name")
        elif not re.fullmatch(r"[A-Za-z0-9_.+-]+", name):
            reporter.add(
                ("scripts", name),
                f"{name!r} becomes part of file names: letters, digits and _ . + - are allowed",
            )
    places: list[tuple[tuple[Any, ...], AxisTable]] = [(("axes",), matrix.axes)]
    for key in ("include", "override"):
        selections: Sequence[Selection] = getattr(matrix, key)
        places += [((key, index), table) for index, table in enumerate(selections)]
    for key in ("exclude", "override", "note"):
        rules = getattr(matrix, key)
        places += [((key, index, "when"), rule.when) for index, rule in enumerate(rules)]
    for path, table in places:
        for name in table.get_values("script"):
            try:
                check_known(name, known, "a script")
            except ValueError as error:
                reporter.add((*path, "script"), str(error))
    for name, script in matrix.scripts.items():
        rules = [rule.name for rule in load_format(script.format).RULES]
        if script.rule and script.rule not in rules:
            reporter.add(
                ("scripts", name, "rule"),
                f"{script.rule!r} is not a rule of {script.format}; known: {'; '.join(rules)}",
            )
