"""Outcomes of training -> tables of throughput, speedup, weak-scaling efficiency and TFLOP/s."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm.contract.topology import Topology, parse_topology
from dlperf_slurm.results.cases import (
    VARIANT_AXES,
    describe_variants,
    find_batch_sizes,
    find_unit,
    find_varying_axes,
    list_samples_per_s,
    make_label,
    name_problem,
    number_footnotes,
    number_ratio_footnotes,
)
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.stats.median import Interval, find_median, find_median_interval
from dlperf_slurm.stats.rank_sum import find_ratio_interval
from dlperf_slurm.worker.models import load_model

# The backward pass has a product for the input's gradient and one for the weight's.
TRAINING_FLOPS_FACTOR = 3


@dataclass(frozen=True)
class Cell:
    """One case in a table: figures, or the problem that stands in their place.

    `batch_sizes` were measured, per device: one, unless repeats of a search found several.
    `tflops_per_device` is the work that the model's definition asks for (10^12 floating-point
    operations, `flops_per_sample` of forward and backward pass) over the time that it took.
    The intervals of ratios take repeats of the baseline too, whose own ratios are 1 and have none.
    """

    case_id: str
    batch_sizes: tuple[int, ...]
    samples_per_s: tuple[float, ...]
    planned_repeats: int
    median: Optional[float]
    interval: Optional[Interval]
    speedup: Optional[float]
    efficiency: Optional[float]
    tflops_per_device: Optional[float]
    problem: str
    footnotes: tuple[int, ...]
    speedup_interval: Optional[Interval] = None
    efficiency_interval: Optional[Interval] = None


@dataclass(frozen=True)
class Column:
    """A framework, with what sets it apart from the table's other columns.

    `compiler` is told apart from the rest of the label.
    """

    label: str
    compiler: str
    baseline: Optional[Topology]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class ThroughputTable:
    """Topologies x frameworks at one model, precision and batch size per device.

    `batch_size` is as the matrix has it; where `is_searched`, each cell has its own.
    `columns[i].cells[j]` belongs to `topologies[j]`.
    """

    model: str
    precision: str
    batch_size: str
    is_searched: bool
    constants: tuple[str, ...]
    unit: str
    topologies: tuple[Topology, ...]
    has_compilers: bool
    columns: tuple[Column, ...]

    @property
    def title(self) -> str:
        parts = [self.precision, f"batch size {self.batch_size} per device"]
        return f"{self.model}: " + ", ".join([*parts, *self.constants])


def make_throughput_tables(
    cases: Sequence[CaseOutcomes], footnotes: Footnotes
) -> tuple[ThroughputTable, ...]:
    """One table per model, precision and batch size, in the order of the matrix."""
    groups: dict[tuple[str, str, str], list[CaseOutcomes]] = {}
    for outcomes in cases:
        case = outcomes.case
        key = (case.model, case.axes.precision, case.batch_size_text)
        groups.setdefault(key, []).append(outcomes)
    return tuple(_make_table(group, footnotes) for group in groups.values())


def _make_table(cases: Sequence[CaseOutcomes], footnotes: Footnotes) -> ThroughputTable:
    first = cases[0].case
    varying = find_varying_axes(cases)
    topologies = sorted({parse_topology(c.case.axes.topology) for c in cases})
    # the compiler has a column of its own
    apart = [axis for axis in varying if axis != "compiler"]
    groups: dict[tuple[str, str], list[CaseOutcomes]] = {}
    for outcomes in cases:
        key = (make_label(outcomes, apart), outcomes.case.axes.compiler)
        groups.setdefault(key, []).append(outcomes)
    return ThroughputTable(
        model=first.model,
        precision=first.axes.precision,
        batch_size=first.batch_size_text,
        is_searched=first.axes.has_batch_search,
        constants=tuple(describe_variants(cases[0], set(VARIANT_AXES) - set(varying))),
        unit=find_unit(first.model),
        topologies=tuple(topologies),
        has_compilers="compiler" in varying,
        columns=tuple(
            _make_column(label, compiler, group, topologies, footnotes)
            for (label, compiler), group in groups.items()
        ),
    )


def _make_column(
    label: str,
    compiler: str,
    cases: Sequence[CaseOutcomes],
    topologies: Sequence[Topology],
    footnotes: Footnotes,
) -> Column:
    by_topology = {parse_topology(c.case.axes.topology): c for c in cases}
    measured = [t for t in topologies if t in by_topology and by_topology[t].records]
    baseline = min(measured, key=lambda t: (t.world_size, t), default=None)
    base = [] if baseline is None else list_samples_per_s(by_topology[baseline])
    cells = [_make_cell(by_topology.get(t), t, baseline, base, footnotes) for t in topologies]
    return Column(label, compiler, baseline, tuple(cells))


def _make_cell(
    outcomes: Optional[CaseOutcomes],
    topology: Topology,
    baseline: Optional[Topology],
    base_samples: Sequence[float],
    footnotes: Footnotes,
) -> Cell:
    if outcomes is None:
        return _make_empty_cell("", 0, "not in the matrix", ())
    case = outcomes.case
    numbers = number_footnotes(outcomes, footnotes)
    samples = list_samples_per_s(outcomes)
    if not samples or baseline is None:
        planned = 0 if case.reason else case.repeats
        return _make_empty_cell(case.case_id, planned, name_problem(outcomes), numbers)
    median = find_median(samples)
    speedup = median / find_median(base_samples)
    per_device = baseline.world_size / topology.world_size
    interval = None if topology == baseline else find_ratio_interval(base_samples, samples)
    if topology != baseline:
        numbers += number_ratio_footnotes(speedup, interval, footnotes)
    return Cell(
        case_id=case.case_id,
        batch_sizes=find_batch_sizes(outcomes),
        samples_per_s=tuple(samples),
        planned_repeats=case.repeats,
        median=median,
        interval=find_median_interval(samples),
        speedup=speedup,
        efficiency=speedup * per_device,
        tflops_per_device=_find_tflops(outcomes, median / topology.world_size),
        problem="",
        footnotes=numbers,
        speedup_interval=interval,
        efficiency_interval=interval and interval.scale(per_device),
    )


def _make_empty_cell(
    case_id: str, planned_repeats: int, problem: str, footnotes: tuple[int, ...]
) -> Cell:
    return Cell(
        case_id=case_id,
        batch_sizes=(),
        samples_per_s=(),
        planned_repeats=planned_repeats,
        median=None,
        interval=None,
        speedup=None,
        efficiency=None,
        tflops_per_device=None,
        problem=problem,
        footnotes=footnotes,
    )


def _find_tflops(outcomes: CaseOutcomes, samples_per_s_per_device: float) -> Optional[float]:
    """Forward and backward; None for a model of somebody else's script, whose work is not known."""
    case = outcomes.records[0].case
    if case.log_format:
        return None
    definition = load_model(case.model).Definition(**case.model_parameters)
    flops_per_sample = TRAINING_FLOPS_FACTOR * int(definition.flops_per_sample)
    return samples_per_s_per_device * flops_per_sample / 1e12
