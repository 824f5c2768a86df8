"""A frame of cases -> tables of throughput, speedup, weak-scaling efficiency and TFLOP/s."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.topology import Topology, parse_topology
from dlperf_slurm.matrix.axes import list_variants
from dlperf_slurm.results.cases import (
    VARIANT_AXES,
    list_ratio_notes,
    make_label,
)
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.frame import CaseRow, list_rows
from dlperf_slurm.stats.median import Interval

if TYPE_CHECKING:
    from pandas import DataFrame


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


def make_throughput_tables(frame: "DataFrame", footnotes: Footnotes) -> tuple[ThroughputTable, ...]:
    """One table per model, precision and batch size of training, in the order of the matrix."""
    training = frame[frame["mode"] == TRAIN]
    tables = training.groupby(["model", "precision", "batch_size_text"], sort=False)
    return tuple(_make_table(cases, footnotes) for _, cases in tables)


def _make_table(cases: "DataFrame", footnotes: Footnotes) -> ThroughputTable:
    first = list_rows(cases)[0]
    varying = [axis for axis in VARIANT_AXES if cases[axis].nunique() > 1]
    topologies = sorted(map(parse_topology, cases.topology.unique()))
    columns = cases.groupby(["framework", *VARIANT_AXES], sort=False)
    return ThroughputTable(
        model=first.model,
        precision=first.precision,
        batch_size=first.batch_size_text,
        is_searched=first.has_batch_search,
        constants=tuple(list_variants(first, set(VARIANT_AXES) - set(varying))),
        unit=first.unit,
        topologies=tuple(topologies),
        has_compilers="compiler" in varying,
        columns=tuple(
            _make_column(list_rows(column), varying, topologies, footnotes) for _, column in columns
        ),
    )


def _make_column(
    rows: Sequence[CaseRow],
    varying: Sequence[str],
    topologies: Sequence[Topology],
    footnotes: Footnotes,
) -> Column:
    by_topology = {row.topology: row for row in rows}
    return Column(
        # the compiler has a column of its own
        label=make_label(rows[0], set(varying) - {"compiler"}),
        compiler=rows[0].compiler,
        baseline=parse_topology(rows[0].baseline) if rows[0].baseline else None,
        cells=tuple(_make_cell(by_topology.get(str(t)), footnotes) for t in topologies),
    )


def _make_cell(row: Optional[CaseRow], footnotes: Footnotes) -> Cell:
    if row is None:
        return NO_CELL
    notes = [*row.table_notes, *list_ratio_notes(row.speedup)]
    return Cell(
        case_id=row.case_id,
        batch_sizes=row.batch_sizes,
        samples_per_s=row.samples,
        planned_repeats=row.repeats_planned,
        median=row.samples_per_s,
        interval=row.interval,
        speedup=row.speedup.value,
        efficiency=row.weak_scaling_efficiency.value,
        tflops_per_device=row.tflops_per_device,
        problem=row.problem,
        footnotes=footnotes.number_all(notes),
        speedup_interval=row.speedup.interval,
        efficiency_interval=row.weak_scaling_efficiency.interval,
    )


# of a topology that a column does not have
NO_CELL = Cell(
    case_id="",
    batch_sizes=(),
    samples_per_s=(),
    planned_repeats=0,
    median=None,
    interval=None,
    speedup=None,
    efficiency=None,
    tflops_per_device=None,
    problem="not in the matrix",
    footnotes=(),
)
