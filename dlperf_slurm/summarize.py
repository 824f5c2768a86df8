"""Outcomes -> tables: medians, intervals, speedup and weak-scaling efficiency, footnotes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Optional

from dlperf_slurm.collect import CaseOutcomes
from dlperf_slurm.run import Manifest
from dlperf_slurm.statistics import (
    Interval,
    count_needed_samples,
    find_median,
    find_median_interval,
)
from dlperf_slurm.topology import Topology, parse_topology
from dlperf_slurm.worker.models import load_model

# axes that tell columns of a table apart, with the value that goes without saying
_VARIANT_AXES = {
    "compiler": "none",
    "memory_format": "default",
    "distribution": "native",
    "clip_global_norm": False,
}

# The backward pass has a product for the input's gradient and one for the weight's.
TRAINING_FLOPS_FACTOR = 3


@dataclass(frozen=True)
class Cell:
    """One case in a table: figures, or the problem that stands in their place.

    `tflops_per_device` is the work that the model's definition asks for (10^12 floating-point
    operations, `flops_per_sample` of forward and backward pass) over the time that it took.
    """

    case_id: str
    samples_per_s: tuple[float, ...]
    planned_repeats: int
    median: Optional[float]
    interval: Optional[Interval]
    speedup: Optional[float]
    efficiency: Optional[float]
    tflops_per_device: Optional[float]
    problem: str
    footnotes: tuple[int, ...]


@dataclass(frozen=True)
class Column:
    """A framework, with what sets it apart from the table's other columns."""

    label: str
    baseline: Optional[Topology]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """Topologies x frameworks at one model, precision and batch size per device.

    `columns[i].cells[j]` belongs to `topologies[j]`.
    """

    model: str
    precision: str
    batch_size_per_device: int
    constants: tuple[str, ...]
    unit: str
    topologies: tuple[Topology, ...]
    columns: tuple[Column, ...]

    @property
    def title(self) -> str:
        parts = [self.precision, f"batch size {self.batch_size_per_device} per device"]
        return f"{self.model}: " + ", ".join([*parts, *self.constants])


@dataclass(frozen=True)
class Summary:
    """All tables of a run; `footnotes[n - 1]` is footnote n."""

    manifest: Manifest
    tables: tuple[Table, ...]
    footnotes: tuple[str, ...]
    ok_repeats: int
    planned_repeats: int

    @property
    def is_complete(self) -> bool:
        return self.ok_repeats == self.planned_repeats


@dataclass
class _Footnotes:
    texts: list[str] = field(default_factory=list)

    def number(self, text: str) -> int:
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1


def summarize(manifest: Manifest, cases: Sequence[CaseOutcomes]) -> Summary:
    """Make the tables of a run, in the order of its matrix."""
    footnotes = _Footnotes()
    keys = dict.fromkeys(
        (c.case.model, c.case.precision, c.case.batch_size_per_device) for c in cases
    )
    tables = tuple(
        _make_table(
            [
                c
                for c in cases
                if (c.case.model, c.case.precision, c.case.batch_size_per_device) == key
            ],
            footnotes,
        )
        for key in keys
    )
    return Summary(
        manifest=manifest,
        tables=tables,
        footnotes=tuple(footnotes.texts),
        ok_repeats=sum(len(c.records) for c in cases),
        planned_repeats=sum(c.case.repeats for c in cases if not c.case.reason),
    )


def _make_table(cases: Sequence[CaseOutcomes], footnotes: _Footnotes) -> Table:
    first = cases[0].case
    varying = [axis for axis in _VARIANT_AXES if len({getattr(c.case, axis) for c in cases}) > 1]
    topologies = sorted({parse_topology(c.case.topology) for c in cases})
    labels = dict.fromkeys(_label(c, varying) for c in cases)
    columns = tuple(
        _make_column(
            label, [c for c in cases if _label(c, varying) == label], topologies, footnotes
        )
        for label in labels
    )
    return Table(
        model=first.model,
        precision=first.precision,
        batch_size_per_device=first.batch_size_per_device,
        constants=tuple(_describe_variants(cases[0], set(_VARIANT_AXES) - set(varying))),
        unit=f"{load_model(first.model).SAMPLE_UNIT}/s",
        topologies=tuple(topologies),
        columns=columns,
    )


def _label(outcomes: CaseOutcomes, varying: Sequence[str]) -> str:
    return " ".join([outcomes.case.framework, *_describe_variants(outcomes, set(varying))])


def _describe_variants(outcomes: CaseOutcomes, axes: set[str]) -> list[str]:
    texts = []
    for axis, default in _VARIANT_AXES.items():
        value = getattr(outcomes.case, axis)
        if axis in axes and value != default:
            texts.append("clip" if axis == "clip_global_norm" else str(value))
    return texts


def _make_column(
    label: str,
    cases: Sequence[CaseOutcomes],
    topologies: Sequence[Topology],
    footnotes: _Footnotes,
) -> Column:
    by_topology = {parse_topology(c.case.topology): c for c in cases}
    measured = [t for t in topologies if t in by_topology and by_topology[t].records]
    baseline = min(measured, key=lambda t: (t.world_size, t), default=None)
    base_median = None if baseline is None else find_median(_list_samples(by_topology[baseline]))
    cells = [
        _make_cell(by_topology.get(t), t, baseline, base_median, footnotes) for t in topologies
    ]
    return Column(label, baseline, tuple(cells))


def _list_samples(outcomes: CaseOutcomes) -> list[float]:
    return [record.samples_per_s for record in outcomes.records]


def _make_cell(
    outcomes: Optional[CaseOutcomes],
    topology: Topology,
    baseline: Optional[Topology],
    base_median: Optional[float],
    footnotes: _Footnotes,
) -> Cell:
    if outcomes is None:
        return _make_empty_cell("", 0, "not in the matrix", ())
    case = outcomes.case
    numbers = [footnotes.number(note) for note in case.notes]
    if case.reason:
        numbers.append(footnotes.number(case.reason))
        return _make_empty_cell(case.case_id, 0, "not run", numbers)
    numbers += [footnotes.number(text) for text in _describe_problems(outcomes)]
    samples = _list_samples(outcomes)
    if not samples or baseline is None or base_median is None:
        return _make_empty_cell(case.case_id, case.repeats, _name_problem(outcomes), numbers)
    if len(samples) < count_needed_samples():
        numbers.append(
            footnotes.number(
                f"a 95 % interval takes {count_needed_samples()} repeats; in braces the smallest "
                "and the largest value"
            )
        )
    median = find_median(samples)
    speedup = median / base_median
    return Cell(
        case_id=case.case_id,
        samples_per_s=tuple(samples),
        planned_repeats=case.repeats,
        median=median,
        interval=find_median_interval(samples),
        speedup=speedup,
        efficiency=speedup * baseline.world_size / topology.world_size,
        tflops_per_device=median * _count_training_flops(outcomes) / topology.world_size / 1e12,
        problem="",
        footnotes=tuple(numbers),
    )


def _make_empty_cell(
    case_id: str, planned_repeats: int, problem: str, footnotes: Sequence[int]
) -> Cell:
    return Cell(
        case_id=case_id,
        samples_per_s=(),
        planned_repeats=planned_repeats,
        median=None,
        interval=None,
        speedup=None,
        efficiency=None,
        tflops_per_device=None,
        problem=problem,
        footnotes=tuple(footnotes),
    )


def _count_training_flops(outcomes: CaseOutcomes) -> int:
    """Of one sample, forward and backward; all records of a case are of the same model."""
    case = outcomes.records[0].case
    definition = load_model(case.model).Definition(**case.model_parameters)
    return TRAINING_FLOPS_FACTOR * int(definition.flops_per_sample)


def _describe_problems(outcomes: CaseOutcomes) -> list[str]:
    """One text per distinct problem of a case, with the repeats that had it."""
    repeats: dict[str, list[str]] = {}
    for outcome in outcomes.outcomes:
        if outcome.problem:
            repeats.setdefault(outcome.problem, []).append(str(outcome.repeat))
    return [
        f"{outcomes.case.case_id} repeat {', '.join(numbers)}: {problem}"
        for problem, numbers in repeats.items()
    ]


def _name_problem(outcomes: CaseOutcomes) -> str:
    """One or two words for a cell; the footnotes have the whole story of each repeat."""
    problems = [outcome.problem for outcome in outcomes.outcomes]
    for sign, word in (("out of memory", "OOM"), ("failed", "failed"), ("invalid", "invalid")):
        if any(problem.startswith(sign) for problem in problems):
            return word
    return "missing"
