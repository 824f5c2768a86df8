"""A matrix -> its cases, in the order of the axes, and what it leaves out with the reason."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from dlperf_slurm.config.toml_tables import Reporter
from dlperf_slurm.contract.axes import DEFAULT_OPTIMIZER, ON_DEVICE, ON_HOST, TRAIN, VAL, WORKER
from dlperf_slurm.contract.case import NO_TRAINING, ModelParameter, Training
from dlperf_slurm.contract.topology import Topology, parse_topology
from dlperf_slurm.errors import raise_problems
from dlperf_slurm.matrix.axes import AXES, DYNAMIC, TOPOLOGY_PARTS, Bound, Condition, Selection
from dlperf_slurm.matrix.batch_size import BatchSearch, BatchSize
from dlperf_slurm.matrix.file import Matrix, MatrixFile, Protocol, Source
from dlperf_slurm.worker.models import load_model

_DEFAULTS = {
    "compiler": "none",
    "memory_format": "default",
    "distribution": "native",
    "mode": TRAIN,
    "source": WORKER,
    "data": ON_DEVICE,
    "optimizer": DEFAULT_OPTIMIZER,
}

# numbers in a case_id, by their axis
_NUMBERS = {
    "data_workers": ("workers", 1),
    "prefetch_batches": ("prefetch", 2),
    "gradient_accumulation": ("accumulate", 1),
    "loss_scale": ("scale", DYNAMIC),
}
_SETTINGS_OF_TRAINING = {
    "optimizer": DEFAULT_OPTIMIZER,
    "gradient_accumulation": 1,
    "loss_scale": DYNAMIC,
}
_SETTINGS_OF_INPUT = {"data_workers": 1, "prefetch_batches": 2}
_SCALED_PRECISIONS = ("amp-fp16", "fp16")


@dataclass(frozen=True)
class MatrixCase:
    """One point of the matrix, without its repeat."""

    model: str
    model_parameters: Mapping[str, ModelParameter]
    framework: str
    topology: Topology
    batch_size_per_device: BatchSize
    precision: str
    compiler: str
    memory_format: str
    distribution: str
    clip_global_norm: bool
    protocol: Protocol
    notes: tuple[str, ...]
    mode: str = TRAIN
    source: str = WORKER
    script: Optional[Source] = None
    data: str = ON_DEVICE
    data_workers: int = 1
    prefetch_batches: int = 2
    optimizer: str = DEFAULT_OPTIMIZER
    gradient_accumulation: int = 1
    loss_scale: Union[int, str] = DYNAMIC
    training: Training = NO_TRAINING
    dataset: str = ""

    @property
    def batch_search(self) -> Optional[BatchSearch]:
        """How the job finds the batch size, when the matrix does not name it."""
        size = self.batch_size_per_device
        return size if isinstance(size, BatchSearch) else None

    @property
    def batch_size(self) -> Optional[int]:
        """The batch size per device, when the matrix names it."""
        size = self.batch_size_per_device
        return size if isinstance(size, int) else None

    @property
    def is_search(self) -> bool:
        return self.batch_search is not None

    @property
    def case_id(self) -> str:
        """Readable, safe as a file name, and the same for the same point in every run."""
        parts = [
            self.framework,
            self.model,
            str(self.topology),
            f"bs{self.batch_search.name if self.batch_search else self.batch_size}",
            self.precision,
        ]
        parts += [
            getattr(self, axis) for axis, default in _DEFAULTS.items()
            if getattr(self, axis) != default
        ]  # fmt: skip
        parts += [
            f"{name}{getattr(self, axis)}" for axis, (name, default) in _NUMBERS.items()
            if getattr(self, axis) != default
        ]  # fmt: skip
        if self.clip_global_norm:
            parts.append("clip")
        return "-".join(parts)


@dataclass(frozen=True)
class LeftOut:
    """A case that is not run, and why."""

    case: MatrixCase
    reason: str


@dataclass(frozen=True)
class Expansion:
    """All that a matrix stands for."""

    cases: tuple[MatrixCase, ...]
    excluded: tuple[LeftOut, ...]


Point = Mapping[str, Any]


def expand_matrix(file: MatrixFile) -> Expansion:
    """The product of models and axes with overrides, plus includes, less excludes.

    Raises InputError when cases are duplicates of each other, or none is left.
    """
    matrix = file.matrix
    reporter = Reporter(file.toml)
    points: dict[tuple[Any, ...], Point] = {}
    models = tuple(model.name for model in matrix.model)
    for point in map(_normalize, _expand(matrix, models, matrix.axes)):
        points[tuple(point.values())] = point
    for index, selection in enumerate(matrix.include):
        included = map(_normalize, _expand(matrix, selection.model or models, selection))
        added = {tuple(point.values()): point for point in included}
        for key in filter(points.__contains__, added):
            case_id = _make_case(matrix, points[key]).case_id
            reporter.add(("include", index), f"adds {case_id}, which is there already")
        points.update(added)
    cases: list[MatrixCase] = []
    excluded: list[LeftOut] = []
    for point in points.values():
        case = _make_case(matrix, point)
        rule = next((rule for rule in matrix.exclude if is_match(rule.when, point)), None)
        if rule is None:
            cases.append(case)
        else:
            excluded.append(LeftOut(case, rule.reason))
    if not cases:
        reporter.add(("exclude",), "leaves no case to run")
    for case_id, count in Counter(case.case_id for case in cases).items():
        if count > 1:
            problem = f"{count} cases are called {case_id}: name the source otherwise than a value"
            reporter.add(("sources",), f"{problem} of another axis")
    raise_problems(reporter.problems)
    return Expansion(tuple(cases), tuple(excluded))


def is_match(condition: Condition, point: Point) -> bool:
    """Whether a point has one of the condition's values on every axis that it names."""
    values = dict(point)
    if "topology" in point:
        topology = parse_topology(point["topology"])
        values.update({part: getattr(topology, part) for part in TOPOLOGY_PARTS})
    return all(
        any(_is_allowed(values[axis], allowed) for allowed in getattr(condition, axis))
        for axis in condition.model_fields_set
    )


def _is_allowed(value: Any, allowed: Any) -> bool:
    if isinstance(allowed, Bound):
        return isinstance(value, int) and allowed.holds(value)
    return bool(value == allowed)


def _expand(matrix: Matrix, models: Sequence[str], selection: Selection) -> Iterator[Point]:
    """Points of some models and of the axes narrowed to a selection.

    Axes that overrides set are decided last, from all the others; what the selection itself
    names stays as it says.
    """
    pinned = set(selection.named_axes()) if selection is not matrix.axes else set()
    axes = {axis: getattr(selection if axis in pinned else matrix.axes, axis) for axis in AXES}
    overridden = {axis for override in matrix.override for axis in override.named_axes()}
    free = [axis for axis in AXES if axis not in overridden - pinned]
    for values in itertools.product(models, *(axes[axis] for axis in free)):
        point = dict(zip(("model", *free), values))
        choices = {axis: axes[axis] for axis in AXES if axis not in point}
        for override in matrix.override:
            if override.named_axes() and is_match(override.when, point):
                changes = {axis: getattr(override, axis) for axis in override.named_axes()}
                choices.update({axis: v for axis, v in changes.items() if axis in choices})
        for chosen in itertools.product(*choices.values()):
            whole = {**point, **dict(zip(choices, chosen))}
            yield {axis: whole[axis] for axis in ("model", *AXES)}


def _normalize(point: Point) -> Point:
    """The point with the default on each axis that has no meaning for it.

    So `data = ["device", "folder"]` with `data_workers = [1, 4]` are three cases, not four.
    """
    meaningless: dict[str, Any] = {}
    if point["mode"] == VAL:
        meaningless.update(_SETTINGS_OF_TRAINING)
    if point["precision"] not in _SCALED_PRECISIONS:
        meaningless["loss_scale"] = DYNAMIC
    if point["data"] in (ON_DEVICE, ON_HOST):
        meaningless.update(_SETTINGS_OF_INPUT)
    return {**point, **meaningless}


def _make_case(matrix: Matrix, point: Point) -> MatrixCase:
    (model,) = (model for model in matrix.model if model.name == point["model"])
    parameters = dict(model.parameters)
    protocol = matrix.protocol
    for override in matrix.override:
        if is_match(override.when, point):
            parameters.update(override.model)
            changes = override.protocol.model_dump(exclude_unset=True)
            protocol = protocol.model_copy(update=changes)
    return MatrixCase(
        model_parameters={
            key: tuple(value) if isinstance(value, list) else value
            for key, value in parameters.items()
        },
        protocol=protocol,
        script=matrix.sources.get(point["source"]),
        training=matrix.training.as_contract() if point["mode"] == TRAIN else NO_TRAINING,
        dataset=model.dataset or load_model(model.name).DATASET,
        notes=tuple(note.text for note in matrix.note if is_match(note.when, point)),
        **{**point, "topology": parse_topology(point["topology"])},
    )
