"""A frame of cases -> tables of throughput, speedup, weak-scaling efficiency and TFLOP/s."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional, Union

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.topology import Topology, parse_topology
from dlperf_slurm.matrix.axes import list_variants
from dlperf_slurm.reports.cells import (
    NO_REFERENCE,
    SHARE,
    UNKNOWN,
    Cell,
    Column,
    Number,
    Table,
    join_counts,
    tabulate,
)
from dlperf_slurm.reports.tables import NO_CASE, ShownCase, list_throughput_columns, show_ratio
from dlperf_slurm.results.cases import VARIANT_AXES, make_label
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.frame import CaseRow, list_rows
from dlperf_slurm.results.ratios import Ratio

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class ThroughputColumn:
    """A framework, with what sets it apart from the table's other columns.

    `compiler` is told apart from the rest of the label. Of a topology that the framework does not
    have the cell is NO_CASE.
    """

    label: str
    compiler: str
    baseline: Optional[Topology]
    cells: tuple[ShownCase, ...]

    @property
    def measured(self) -> list[ShownCase]:
        return [case for case in self.cells if case.samples]


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
    columns: tuple[ThroughputColumn, ...]

    @property
    def title(self) -> str:
        parts = [self.precision, f"batch size {self.batch_size} per device"]
        return f"{self.model}: " + ", ".join([*parts, *self.constants])

    @property
    def measured(self) -> list[ShownCase]:
        """The cases that have figures, column by column."""
        return [case for column in self.columns for case in column.measured]


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
) -> ThroughputColumn:
    by_topology = {row.topology: row for row in rows}
    found = [by_topology.get(str(topology)) for topology in topologies]
    return ThroughputColumn(
        # the compiler has a column of its own
        label=make_label(rows[0], set(varying) - {"compiler"}),
        compiler=rows[0].compiler,
        baseline=parse_topology(rows[0].baseline) if rows[0].baseline else None,
        cells=tuple(
            show_ratio(row, footnotes, row.speedup, row.scaling_notes) if row else NO_CASE
            for row in found
        ),
    )


# a case in its place
_Place = tuple[ThroughputColumn, ShownCase]


# what could be reached, where that is known, and what it is
_LIMITS: tuple[Column[ShownCase], ...] = (
    Column("of measured peak", lambda case: case.measured_peak_share, SHARE, UNKNOWN),
    Column("of published peak", lambda case: case.published_peak_share, SHARE, UNKNOWN),
    Column("reachable efficiency", lambda case: case.reachable_efficiency, SHARE, UNKNOWN),
)
_MEANINGS = {
    "of measured peak": "measured peak: the framework's best matrix product on the same device and "
    "in the same numbers",
    "of published peak": "published peak: the vendor's, without sparsity",
    "reachable efficiency": "reachable: one device's step, with the sum of all gradients "
    "beside its backward pass",
}


def tabulate_throughput(table: ThroughputTable, is_wide: bool = True) -> Table:
    """One row per case of the matrix; not wide it has no intervals of efficiencies."""
    places = [(column, case) for column in table.columns for case in column.cells]
    words: list[Column[_Place]] = [
        Column("framework", lambda place: place[0].label),
        Column("topology", lambda place: place[1].topology),
    ]
    columns = list_figure_columns(table.measured, table.unit, table.is_searched, is_wide)
    figures = list(map(_read_case, columns))
    if table.has_compilers:
        words.insert(1, Column("compiler", lambda place: place[0].compiler))
    there = [place for place in places if place[1] != NO_CASE]
    caption = "; ".join([describe_baselines(table.columns), *explain_limits(columns)])
    return tabulate(table.title, words, figures, there, caption, lambda place: place[1].problem)


def list_figure_columns(
    cases: Sequence[ShownCase], unit: str, is_searched: bool, is_wide: bool = True
) -> list[Column[ShownCase]]:
    """The columns of figures of training; limits that no case knows are left out.

    Operations per second are in the unit of their size, one for all cases.
    """

    def get_efficiency(case: ShownCase) -> Union[Ratio, Cell]:
        ratio = case.weak_scaling_efficiency
        return ratio if is_wide else Cell(ratio.value, SHARE, ratio.interval, hides_bounds=True)

    most = max((case.tflops_per_device or 0.0 for case in cases), default=0.0)
    prefix, factor = ("G", 1000.0) if 0 < most < 1 else ("T", 1.0)
    sizes = Column[ShownCase]("batch size", lambda case: join_counts(case.batch_sizes))
    work = Number(".3g", factor)
    return [
        *([sizes] if is_searched else []),
        *list_throughput_columns(cases, unit),
        Column("speedup", lambda case: case.speedup, missing=NO_REFERENCE),
        Column("efficiency", get_efficiency, SHARE, NO_REFERENCE),
        Column(f"{prefix}FLOP/s per device", lambda case: case.tflops_per_device, work, UNKNOWN),
        *(limit for limit in _LIMITS if any(limit.read(case) is not None for case in cases)),
    ]


def explain_limits(columns: Sequence[Column[ShownCase]]) -> list[str]:
    """What those of the columns are that say what could be reached."""
    return [_MEANINGS[column.header] for column in columns if column.header in _MEANINGS]


def _read_case(column: Column[ShownCase]) -> Column[_Place]:
    """The column of places that shows their cases' figures."""
    return Column(column.header, lambda place: column.read(place[1]), column.form, column.missing)


def describe_baselines(columns: Sequence[ThroughputColumn]) -> str:
    """Which topology the speedups of a table are relative to."""
    baselines = {str(column.baseline) for column in columns if column.baseline is not None}
    if not baselines:
        return "no case of this table was measured"
    if len(baselines) == 1:
        return f"speedup and weak-scaling efficiency against {min(baselines)}"
    each = (f"{c.label}: {c.baseline}" for c in columns if c.baseline is not None)
    return "speedup and weak-scaling efficiency against " + ", ".join(each)
