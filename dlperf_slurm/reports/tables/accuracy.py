"""A frame of cases -> top-1 and time to train of trainings to accuracy, over seeds, as NVIDIA's."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.reports.cells import (
    NO_REFERENCE,
    PERCENT,
    UNKNOWN,
    Cell,
    Column,
    Duration,
    Number,
    Table,
    tabulate,
)
from dlperf_slurm.reports.tables import ShownCase, make_count_cell, show_ratio
from dlperf_slurm.results.cases import VARIANT_AXES, make_label
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.frame import list_rows
from dlperf_slurm.results.ratios import find_reference

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class AccuracyTable:
    """The trainings of one model; `target` is the least top-1 asked for, 0 for none.

    `reference_precision` is what speedups are relative to; empty when there is none.
    """

    model: str
    epochs: int
    target: float
    reference_precision: str
    rows: tuple[ShownCase, ...]

    @property
    def title(self) -> str:
        return f"{self.model}: training to accuracy, {self.epochs} epochs"


def make_accuracy_tables(frame: "DataFrame", footnotes: Footnotes) -> tuple[AccuracyTable, ...]:
    """One table per model, in the order of the matrix."""
    trained = frame[(frame["mode"] == TRAIN) & (frame.epochs > 0)]
    return tuple(_make_table(cases, footnotes) for _, cases in trained.groupby("model", sort=False))


def _make_table(cases: "DataFrame", footnotes: Footnotes) -> AccuracyTable:
    rows = list_rows(cases)
    return AccuracyTable(
        model=rows[0].model,
        epochs=rows[0].epochs,
        target=max(row.accuracy.target for row in rows),
        reference_precision=find_reference(cases),
        rows=tuple(show_ratio(row, footnotes, row.train_speedup) for row in rows),
    )


def find_label(row: ShownCase) -> str:
    """The case's framework with its variant; all read their data from somewhere."""
    return make_label(row, set(VARIANT_AXES) - {"data"})


def tabulate_accuracy(table: AccuracyTable) -> Table:
    """One row per case, with NVIDIA's figures: average, deviation, extremes, time to train."""
    words: list[Column[ShownCase]] = [
        Column("framework", find_label),
        Column("precision", lambda row: row.precision),
        Column("topology", lambda row: row.topology),
    ]
    figures: list[Column[ShownCase]] = [
        Column("batch size", lambda row: row.batch_size_text),
        Column("seeds", _count_seeds),
        Column("average top-1 %", lambda row: row.accuracy.average, PERCENT),
        Column("deviation", lambda row: row.accuracy.deviation, PERCENT, "one seed"),
        Column("minimum", lambda row: min(row.accuracy.top1, default=None), PERCENT),
        Column("maximum", lambda row: max(row.accuracy.top1, default=None), PERCENT),
        Column("epochs", lambda row: row.accuracy.epochs, Number("g")),
        Column("time to train", lambda row: row.train_seconds, Duration(), UNKNOWN),
    ]
    if table.target:
        figures.insert(-1, Column(f"reached {100 * table.target:g} %", _count_reached))
    if table.reference_precision and len({row.precision for row in table.rows}) > 1:
        header = f"speedup over {table.reference_precision}"
        figures.append(Column(header, lambda row: row.train_speedup, missing=NO_REFERENCE))
    caption = (
        "top-1 after the last epoch, one value per seed; standard deviation (n - 1) in "
        "percentage points; time to train with the validations, median over seeds"
    )
    return tabulate(table.title, words, figures, table.rows, caption, lambda row: row.problem)


def _count_seeds(row: ShownCase) -> Cell:
    count, planned = len(row.accuracy.top1), row.repeats_planned
    unit = "" if count == planned else f" of {planned}"
    return Cell(count or None, Number(".0f", unit=unit), notes=row.footnotes)


def _count_reached(row: ShownCase) -> Cell:
    return make_count_cell(row.accuracy.reached, len(row.accuracy.top1))
