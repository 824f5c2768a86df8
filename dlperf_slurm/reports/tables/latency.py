"""A frame of cases -> tables of throughput and latency of inference by batch size, as NVIDIA's."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.reports.cells import (
    MILLISECONDS,
    NO_REFERENCE,
    Cell,
    Column,
    Table,
    join_counts,
    tabulate,
)
from dlperf_slurm.reports.tables import ShownCase, find_range, list_throughput_columns, show_ratio
from dlperf_slurm.results.cases import VARIANT_AXES, make_label
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.frame import CaseRow, list_rows
from dlperf_slurm.stats.median import LATENCY_PERCENTILES

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class LatencyTable:
    """Batch sizes x precisions of one model, framework (with its variant) and topology.

    Speedups are over `reference_precision` at the same batch size; it is empty when there is none.
    """

    model: str
    label: str
    compiler: str
    topology: str
    unit: str
    reference_precision: str
    rows: tuple[ShownCase, ...]

    @property
    def title(self) -> str:
        return f"{self.model} inference: {self.label}, {self.topology}"


def make_latency_tables(frame: "DataFrame", footnotes: Footnotes) -> tuple[LatencyTable, ...]:
    """One table per model, framework with its variant, and topology, in the matrix's order."""
    tables = frame[frame["mode"] == INFER].groupby("precision_table")
    return tuple(_make_table(list_rows(cases), footnotes) for _, cases in tables)


def _make_table(rows: list[CaseRow], footnotes: Footnotes) -> LatencyTable:
    first = rows[0]
    # sorts within a precision only: these keep the order of the matrix
    precisions = list(dict.fromkeys(row.precision for row in rows))
    rows = sorted(rows, key=lambda row: (row.planned_size, precisions.index(row.precision)))
    return LatencyTable(
        model=first.model,
        label=make_label(first, VARIANT_AXES),
        compiler=first.compiler,
        topology=first.topology,
        unit=first.unit,
        reference_precision=first.reference_precision,
        rows=tuple(
            show_ratio(
                row, footnotes, row.precision_speedup, row.latency.notes if row.latency else ()
            )
            for row in rows
        ),
    )


# in the place of a percentile, of batches
TOO_FEW = "too few"

SPEEDUP = Column[ShownCase]("speedup", lambda row: row.precision_speedup, missing=NO_REFERENCE)


def tabulate_latency(table: LatencyTable, is_wide: bool = True) -> Table:
    """NVIDIA's columns: throughput and latencies in ms, each with its speedup if there is one.

    The mean latency and its speedup have their intervals: with those of the percentiles, which the
    files have, nobody could read the table. Not wide it has neither, nor the latencies' speedups.
    """
    precisions = {row.precision for row in table.rows}
    is_compared = len(precisions) > 1 and bool(table.reference_precision)
    figures: list[Column[ShownCase]] = [
        Column("batch size", _make_batch_size_cell),
        *list_throughput_columns(table.rows, table.unit),
    ]
    if is_compared:
        figures.append(SPEEDUP)
    names = ["avg ms", *(f"{percent} % ms" for percent in LATENCY_PERCENTILES)]
    for index, name in enumerate(names):
        figures.append(_make_latency_column(name, index, is_wide and index == 0))
        if is_compared and is_wide:
            figures.append(_make_speedup_column(index))
    words = [Column[ShownCase]("precision", lambda row: row.precision)]
    reference = f"speedup over {table.reference_precision}; " if is_compared else ""
    caption = (
        f"{reference}latency of one batch, all ranks' batches alike, medians over repeats; 100 %: "
        "the slowest of as many as there were; "
        f"their intervals {'but for the average ' if is_wide else ''}are in the report's CSV"
    )
    return tabulate(table.title, words, figures, table.rows, caption, lambda row: row.problem)


def _make_batch_size_cell(row: ShownCase) -> Union[Cell, str]:
    sizes = row.batch_sizes
    return join_counts(sizes) if sizes else row.batch_size_text


def _make_latency_column(name: str, index: int, has_spread: bool) -> Column[ShownCase]:
    def read(row: ShownCase) -> Cell:
        if row.latency is None:
            return Cell(None)
        return Cell(
            row.latency.values[index],
            MILLISECONDS,
            row.latency.intervals[index],
            find_range(row.latency.units[index]),
            hides_bounds=not has_spread,
            problem=TOO_FEW,
        )

    return Column(name, read)


def _make_speedup_column(index: int) -> Column[ShownCase]:
    def read(row: ShownCase) -> Cell:
        ratio = row.latency_speedups[index]
        return Cell(ratio.value, interval=ratio.interval, hides_bounds=index > 0)

    return Column("speedup", read, missing=NO_REFERENCE)
