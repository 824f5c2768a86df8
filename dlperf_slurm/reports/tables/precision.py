"""A frame of cases -> what reduced precision and compilers bring, by topology, as NVIDIA's."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.topology import Topology, parse_topology
from dlperf_slurm.results.cases import VARIANT_AXES, list_ratio_notes, make_label
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.frame import CaseRow, list_rows
from dlperf_slurm.stats.median import Interval

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Figure:
    """One compiler's part of a cell: figures, or the problem in their place.

    `speedup` is over the reference precision with the same compiler, `weak_scaling` over the
    smallest topology that was measured. The interval is that of the speedup, of which the reference
    itself has none; the throughput tables have that of weak scaling.
    """

    case_id: str
    median: Optional[float]
    speedup: Optional[float]
    weak_scaling: Optional[float]
    problem: str
    footnotes: tuple[int, ...]
    speedup_interval: Optional[Interval] = None


@dataclass(frozen=True)
class PrecisionColumn:
    """One precision with its batch size; `cells[row][i]` is of the table's `compilers[i]`."""

    precision: str
    batch_size: str
    cells: tuple[tuple[Figure, ...], ...]


@dataclass(frozen=True)
class PrecisionTable:
    """Topologies x precisions of one model and framework (with its variant but the compiler).

    `reference_precision` is what speedups are relative to; empty when there is none.
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
                    tuple(
                        _make_figure(by_place.get((precision, name, str(topology))), footnotes)
                        for name in compilers
                    )
                    for topology in topologies
                ),
            )
            for precision, column in cases.groupby("precision", sort=False)
        ),
    )


def _make_figure(row: Optional[CaseRow], footnotes: Footnotes) -> Figure:
    if row is None:
        return Figure("", None, None, None, "not in the matrix", ())
    notes = [*row.table_notes, *list_ratio_notes(row.precision_speedup)]
    return Figure(
        case_id=row.case_id,
        median=row.samples_per_s,
        speedup=row.precision_speedup.value,
        weak_scaling=row.speedup.value,
        problem=row.problem,
        footnotes=footnotes.number_all(notes),
        speedup_interval=row.precision_speedup.interval,
    )
