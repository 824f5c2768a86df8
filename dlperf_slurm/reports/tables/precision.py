"""A frame of cases -> what reduced precision and compilers bring, by topology, as NVIDIA's."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.topology import Topology, parse_topology
from dlperf_slurm.reports.cells import NO_REFERENCE, Cell, Column, Table, join_cells, tabulate
from dlperf_slurm.reports.tables import NO_CASE, ShownCase, make_plain_throughput_cell, show_ratio
from dlperf_slurm.results.cases import VARIANT_AXES, make_label
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.frame import list_rows

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class PrecisionColumn:
    """One precision with its batch size; `cells[row][i]` is of the table's `compilers[i]`."""

    precision: str
    batch_size: str
    cells: tuple[tuple[ShownCase, ...], ...]


@dataclass(frozen=True)
class PrecisionTable:
    """Topologies x precisions of one model and framework (with its variant but the compiler).

    Speedups are over `reference_precision` with the same compiler; it is empty when there is none.
    Weak scaling is over the smallest topology that was measured.
    """

    model: str
    label: str
    unit: str
    compilers: tuple[str, ...]
    reference_precision: str
    topologies: tuple[Topology, ...]
    columns: tuple[PrecisionColumn, ...]

    @property
    def title(self) -> str:
        what = [
            *(["precisions"] if len(self.columns) > 1 else []),
            *([" / ".join(self.compilers)] if len(self.compilers) > 1 else []),
        ]
        return f"{self.model}: {self.label}, {', '.join(what)}"


def make_precision_tables(frame: "DataFrame", footnotes: Footnotes) -> tuple[PrecisionTable, ...]:
    """One table for each model and framework that has more than one precision or compiler.

    A precision or compiler that is left out everywhere has no place here: other tables say why.
    """
    tables = frame[frame["mode"] == TRAIN].groupby("precision_table")
    return tuple(_make_table(cases, footnotes) for _, cases in tables)


def _make_table(cases: "DataFrame", footnotes: Footnotes) -> PrecisionTable:
    rows = list_rows(cases)
    compilers = tuple(cases.compiler.unique())
    topologies = sorted(map(parse_topology, cases.topology.unique()))
    by_place = {(row.precision, row.compiler, row.topology): row for row in rows}

    def show(precision: str, compiler: str, topology: Topology) -> ShownCase:
        row = by_place.get((precision, compiler, str(topology)))
        return show_ratio(row, footnotes, row.precision_speedup) if row else NO_CASE

    return PrecisionTable(
        model=rows[0].model,
        label=make_label(rows[0], set(VARIANT_AXES) - {"compiler"}),
        unit=rows[0].unit,
        compilers=compilers,
        reference_precision=rows[0].reference_precision,
        topologies=tuple(topologies),
        columns=tuple(
            PrecisionColumn(
                precision=precision,
                batch_size=column.batch_size_text.iloc[0],
                cells=tuple(
                    tuple(show(precision, compiler, topology) for compiler in compilers)
                    for topology in topologies
                ),
            )
            for precision, column in cases.groupby("precision", sort=False)
        ),
    )


# of each compiler's part of a cell
THROUGHPUT = Column[ShownCase](
    "", lambda case: replace(make_plain_throughput_cell(case), notes=()), missing=NO_REFERENCE
)
SPEEDUP = Column[ShownCase]("", lambda case: case.precision_speedup, missing=NO_REFERENCE)
SCALING = Column[ShownCase](
    "",
    lambda case: Cell(case.speedup.value, interval=case.speedup.interval, hides_bounds=True),
    missing=NO_REFERENCE,
)


def tabulate_precision(table: PrecisionTable) -> Table:
    """NVIDIA's columns: throughputs, their speedups, their weak scaling; one row per topology.

    Only the speedups have their intervals: those of the rest stand in the throughput tables.
    """
    reference = table.reference_precision
    reduced = [c for c in table.columns if reference and c.precision != reference]
    words = [Column[int]("topology", lambda row: str(table.topologies[row]))]
    figures = [
        *(
            _join_compilers(f"{table.unit} {c.precision} bs {c.batch_size}", c, THROUGHPUT)
            for c in table.columns
        ),
        *(_join_compilers(f"speedup {c.precision} / {reference}", c, SPEEDUP) for c in reduced),
        *(_join_compilers(f"weak scaling {c.precision}", c, SCALING) for c in table.columns),
    ]
    values = f"in a cell: {' / '.join(table.compilers)}; " if len(table.compilers) > 1 else ""
    caption = f"{values}medians; weak scaling against the smallest topology measured"
    return tabulate(table.title, words, figures, range(len(table.topologies)), caption)


def _join_compilers(header: str, column: PrecisionColumn, part: Column[ShownCase]) -> Column[int]:
    """One value per compiler, with the case's marks behind the throughput."""

    def read(row: int) -> Cell:
        cases = column.cells[row]
        cells = [part.show(case, case.problem) for case in cases]
        notes = [number for case in cases for number in case.footnotes]
        return join_cells(cells, " / ", notes if part is THROUGHPUT else ())

    return Column(header, read)
