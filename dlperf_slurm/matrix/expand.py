"""A matrix -> its cases in the order of the axes, and its excluded cases with the reason."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Optional

from dlperf_slurm.config.bounds import Bound
from dlperf_slurm.config.toml_tables import ProblemCollector
from dlperf_slurm.contract.axes import TRAIN, WORKER, Axes
from dlperf_slurm.contract.case import NO_TRAINING, ModelParameter, Training
from dlperf_slurm.contract.topology import Topology, parse_topology
from dlperf_slurm.errors import InputError, raise_problems
from dlperf_slurm.matrix.axes import AXES, Point, make_case_id, normalize
from dlperf_slurm.matrix.file import MatrixFile
from dlperf_slurm.matrix.tables import (
    TOPOLOGY_PARTS,
    Condition,
    Matrix,
    Protocol,
    ScriptTable,
    Selection,
)
from dlperf_slurm.worker.models import load_model

# limits: larger matrices would take minutes to plan and stage, and days to run
MAX_CASES = 10_000
MAX_ARRAY_TASKS = 100_000
# combinations of values before normalization, which may make fewer cases
MAX_POINTS = 100_000
MAX_COMPARISONS = 1_000_000


@dataclass(frozen=True)
class MatrixCase:
    """A case of the matrix: model, a value on each axis, and protocol; repeats are not separate.

    `profiler` is that of `submit --profile`, or "".
    """

    model: str
    model_parameters: Mapping[str, ModelParameter]
    axes: Axes
    protocol: Protocol
    notes: tuple[str, ...]
    script_table: Optional[ScriptTable] = None
    training: Training = NO_TRAINING
    dataset: str = ""
    profiler: str = ""

    @cached_property
    def topology(self) -> Topology:
        return parse_topology(self.axes.topology)

    @cached_property
    def case_id(self) -> str:
        return make_case_id(self.model, self.axes)


@dataclass(frozen=True)
class ExcludedCase:
    """A case that is not run, and the reason, as tables show it."""

    case: MatrixCase
    reason: str


@dataclass(frozen=True)
class Expansion:
    """The cases of a matrix that are to run, and those that its [[exclude]] tables exclude."""

    cases: tuple[MatrixCase, ...]
    excluded: tuple[ExcludedCase, ...]


def expand_matrix(file: MatrixFile) -> Expansion:
    """Expand a matrix: the product of models and axes with overrides, plus includes, less excludes.

    Raises InputError for duplicate cases, for too many cases, if no case is left, or if a case has
    no batch size or a global one that cannot be shared equally.
    """
    matrix = file.matrix
    reporter = ProblemCollector(file.toml)
    points: dict[tuple[Any, ...], Point] = {}
    models = tuple(model.name for model in matrix.model) or ("",)
    # the limit keeps the expansion within seconds
    budget = iter(range(find_max_points(matrix)))
    for point in _limit(_expand(matrix, models, matrix.axes), budget, file):
        points[tuple(point.values())] = point
    for index, selection in enumerate(matrix.include):
        included = _limit(_expand(matrix, selection.model or models, selection), budget, file)
        added = {tuple(point.values()): point for point in included}
        for key in filter(points.__contains__, added):
            case_id = _make_case(matrix, points[key]).case_id
            reporter.add(("include", index), f"adds {case_id}, which the matrix has already")
        points.update(added)
    cases: list[MatrixCase] = []
    excluded: list[ExcludedCase] = []
    for point in points.values():
        case = _make_case(matrix, point)
        rule = next((rule for rule in matrix.exclude if is_match(rule.when, point)), None)
        if rule is None:
            cases.append(case)
            if case.axes.batch_size_per_device == 0:
                _report_missing_batch(case.axes, reporter)
        else:
            excluded.append(ExcludedCase(case, rule.reason))
    if not cases:
        reporter.add(("exclude",), "leaves no case to run")
    task_count = sum(case.protocol.repeats for case in cases)
    if len(cases) > MAX_CASES or task_count > MAX_ARRAY_TASKS:
        reporter.add(
            ("axes",),
            f"makes {len(cases)} cases with {task_count} array tasks; at most {MAX_CASES} cases "
            f"and {MAX_ARRAY_TASKS} array tasks are allowed",
        )
    for case_id, count in Counter(case.case_id for case in cases).items():
        if count > 1:
            problem = (
                f"{count} cases have the same name {case_id}, because a script is named like the "
                "value of another axis; rename the script"
            )
            reporter.add(("scripts",), problem)
    raise_problems(reporter.problems)
    return Expansion(tuple(cases), tuple(excluded))


def _report_missing_batch(axes: Axes, reporter: ProblemCollector) -> None:
    """Report a missing batch size, or a global one that the devices cannot share equally."""
    if not axes.global_batch_size:
        text = "is missing; set this key, or global_batch_size"
        reporter.add(("axes", "batch_size_per_device"), text)
        return
    parts = axes.world_size * axes.gradient_accumulation
    reporter.add(
        ("axes", "global_batch_size"),
        f"{axes.global_batch_size} cannot be split equally between the devices of {axes.topology}; "
        f"allowed: multiples of {parts} (devices x gradient_accumulation)",
    )


def find_max_points(matrix: Matrix) -> int:
    """Return how many combinations of values a matrix may have before it is refused.

    The limit is lower with many conditions, which are evaluated for each combination.
    """
    conditions = [
        *(rule.when for rule in matrix.exclude),
        *(rule.when for rule in matrix.override),
        *(rule.when for rule in matrix.note),
    ]
    compared = sum(
        len(when.get_values(axis)) for when in conditions for axis in when.model_fields_set
    )
    return min(MAX_POINTS, MAX_COMPARISONS // max(compared, 1))


def _limit(points: Iterator[Point], budget: Iterator[int], file: MatrixFile) -> Iterator[Point]:
    """Yield combinations of values, normalized; raise InputError when `budget` is used up.

    Each combination takes one item of the iterator `budget`, which several calls share.
    """
    for point in points:
        if next(budget, None) is None:
            raise InputError(
                f"{file.toml.label}: the axes have more than {find_max_points(file.matrix)} "
                "combinations, the limit for a matrix with this many conditions in [[exclude]], "
                "[[override]] and [[note]]; split the matrix"
            )
        yield normalize(point)


def is_match(condition: Condition, point: Point) -> bool:
    """Return whether a combination has an allowed value on each axis that the condition names."""
    return all(
        any(_is_allowed(_get_value(point, axis), allowed) for allowed in condition.get_values(axis))
        for axis in condition.model_fields_set
    )


def _get_value(point: Point, axis: str) -> Any:
    """Return a combination's value on an axis, or of a part of its topology, such as `nodes`."""
    if axis in TOPOLOGY_PARTS:
        return getattr(parse_topology(point["topology"]), axis)
    return point[axis]


def _is_allowed(value: Any, allowed: Any) -> bool:
    if isinstance(allowed, Bound):
        return isinstance(value, int) and allowed.holds(value)
    return bool(value == allowed)


def _expand(matrix: Matrix, models: Sequence[str], selection: Selection) -> Iterator[Point]:
    """Yield all combinations of models and values, with the matrix's overrides applied.

    Axes that `selection` names have its values, others those of the matrix. Axes that overrides set
    are chosen last, as overrides depend on the other axes; axes that the selection names are not
    overridden.
    """
    pinned = set(selection.named_axes()) if selection is not matrix.axes else set()
    axes = {axis: (selection if axis in pinned else matrix.axes).get_values(axis) for axis in AXES}
    overridden = {axis for override in matrix.override for axis in override.named_axes()}
    free = [axis for axis in AXES if axis not in overridden - pinned]
    for values in itertools.product(models, *(axes[axis] for axis in free)):
        point = dict(zip(("model", *free), values))
        point["model"] = _find_own_model(matrix, point) or point["model"]
        choices = {axis: axes[axis] for axis in AXES if axis not in point}
        for override in matrix.override:
            if override.named_axes() and is_match(override.when, point):
                changes = {axis: override.get_values(axis) for axis in override.named_axes()}
                choices.update({axis: v for axis, v in changes.items() if axis in choices})
        for chosen in itertools.product(*choices.values()):
            whole = {**point, **dict(zip(choices, chosen))}
            whole["model"] = _find_own_model(matrix, whole) or whole["model"]
            yield {axis: whole[axis] for axis in ("model", *AXES)}


def _find_own_model(matrix: Matrix, point: Point) -> str:
    """Return the model that a combination's script has as its own, without code here, or ''."""
    script = matrix.scripts.get(point.get("script", WORKER))
    return script.model if script else ""


def _make_case(matrix: Matrix, point: Point) -> MatrixCase:
    # an external script's own model has no [model] table
    model = next((model for model in matrix.model if model.name == point["model"]), None)
    parameters = dict(model.parameters) if model else {}
    protocol = matrix.protocol
    for override in matrix.override:
        if is_match(override.when, point):
            parameters.update(override.model if model else {})
            changes = override.protocol.model_dump(exclude_unset=True)
            protocol = protocol.model_copy(update=changes)
    return MatrixCase(
        model=point["model"],
        model_parameters={
            key: tuple(value) if isinstance(value, list) else value
            for key, value in parameters.items()
        },
        axes=Axes(**{axis: point[axis] for axis in AXES}),
        protocol=protocol,
        script_table=matrix.scripts.get(point["script"]),
        training=matrix.training.as_contract() if point["mode"] == TRAIN else NO_TRAINING,
        dataset=(model.dataset or load_model(model.name).DATASET) if model else "",
        notes=tuple(note.text for note in matrix.note if is_match(note.when, point)),
    )
