"""matrix.toml -> a validated Matrix, or every mistake of the file in one answer."""

import re
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
    largest batch size goes in steps of `batch_granularity`; a rank that needed more memory than
    `memory_limit_mib_per_device` counts as out of memory. Beside the measured steps a
    sample of power, clocks and memory is taken every `telemetry_interval_seconds`; 0 is none.
    """

    repeats: PositiveInt = 7
    warmup_steps: Annotated[int, Field(ge=0)] = 20
    measured_steps: PositiveInt = 100
    shuffle_seed: Annotated[int, Field(ge=0)] = 0
    seed: Annotated[int, Field(ge=0)] = 1
    batch_granularity: PositiveInt = 8
    memory_limit_mib_per_device: Optional[PositiveInt] = None
    telemetry_interval_seconds: Annotated[float, Field(ge=0)] = 0.5


class ProtocolOverride(Table):
    """The parts of the protocol that some cases have otherwise."""

    repeats: Optional[PositiveInt] = None
    warmup_steps: Optional[Annotated[int, Field(ge=0)]] = None
    measured_steps: Optional[PositiveInt] = None


class TrainingTable(Table):
    """Training to accuracy instead of a number of steps: `contract.Training` has the terms.

    Cases of mode "train" then run `epochs` over the data set, or stop after the first one that
    reaches `target_top1`; each repeat has a seed of its own, counted from the protocol's.
    """

    epochs: Annotated[int, Field(ge=0)] = 0
    target_top1: Optional[Annotated[float, Field(gt=0, le=1)]] = None
    learning_rate: Optional[Annotated[float, Field(gt=0)]] = None
    schedule: Literal["constant", "cosine"] = "constant"
    warmup_epochs: Annotated[float, Field(ge=0)] = 0.0
    mixup_alpha: Annotated[float, Field(ge=0)] = 0.0

    @model_validator(mode="after")
    def _check_warmup(self) -> "TrainingTable":
        if self.epochs and self.warmup_epochs >= self.epochs:
            raise ValueError(
                f"warmup_epochs is {self.warmup_epochs}; allowed: less than epochs, {self.epochs}"
            )
        return self

    def as_contract(self) -> Training:
        """The same in the words of the worker."""
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
    dataset: str = ""

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.__pydantic_extra__ or {}


def _check_models_differ(models: tuple[ModelTable, ...]) -> tuple[ModelTable, ...]:
    check_values(tuple(model.name for model in models))
    return models


class Source(Table):
    """Somebody else's script that runs a case, and how its log is read.

    `command` is lines of bash, a Jinja2 template over the case (docs/how-it-works.md lists its
    values), run in the framework's environment: `start` "once", on the first node, for a script
    that starts its ranks itself, or by the launcher on all "ranks". `format` is that of the log
    that it prints, `rule` the name of the publisher's rule for its figure.
    """

    command: Annotated[str, Field(min_length=1)]
    format: Annotated[str, OneOf("a log format", list_formats)]
    rule: str = ""
    start: Literal["once", "ranks"] = "once"
    env: dict[str, str] = {}


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
    axes: AxesTable
    protocol: Protocol = Protocol()
    training: TrainingTable = TrainingTable()
    include: OneOrMore[Inclusion] = ()
    exclude: OneOrMore[Exclusion] = ()
    override: OneOrMore[Override] = ()
    note: OneOrMore[Note] = ()
    sources: dict[str, Source] = {}
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
        _check_sources(matrix, reporter)
    raise_problems(reporter.problems)
    assert matrix is not None, "no matrix without a problem"
    return MatrixFile(path.stem, toml, matrix)


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


def _check_sources(matrix: Matrix, reporter: Reporter) -> None:
    """Names of sources in the axes and rules, which only the whole file can tell from mistakes."""
    known = [WORKER, *matrix.sources]
    for name in matrix.sources:
        if name == WORKER:
            reporter.add(("sources", name), f"{name!r} is this tool's own; choose another name")
        elif not re.fullmatch(r"[A-Za-z0-9_.+-]+", name):
            reporter.add(
                ("sources", name),
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
        for name in table.get_values("source"):
            try:
                check_known(name, known, "a source")
            except ValueError as error:
                reporter.add((*path, "source"), str(error))
    for name, source in matrix.sources.items():
        rules = [rule.name for rule in load_format(source.format).RULES]
        if source.rule and source.rule not in rules:
            reporter.add(
                ("sources", name, "rule"),
                f"{source.rule!r} is not a rule of {source.format}; known: {'; '.join(rules)}",
            )
