"""A frame of cases -> top-1 and time to train of trainings to accuracy, over seeds, as NVIDIA's."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.results.cases import VARIANT_AXES, list_ratio_notes, make_label
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.frame import CaseRow, list_rows
from dlperf_slurm.results.ratios import find_reference
from dlperf_slurm.stats.median import Interval

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class AccuracyRow:
    """One case over its seeds: figures, or the problem that stands in their place.

    `top1` is by seed, after its last epoch, a fraction of the validation samples; `deviation` is
    their standard deviation (n - 1), None for a single one. `train_seconds` is the median time from
    the first step to the end of the last epoch's validation, `speedup` how many times longer the
    reference precision took, whose own has no interval. `reached` is how many seeds reached the
    target, None without one, and `epochs` the median number of epochs that were run.
    """

    case_id: str
    label: str
    precision: str
    topology: str
    batch_size: str
    planned_seeds: int
    top1: tuple[float, ...]
    average: Optional[float]
    deviation: Optional[float]
    epochs: Optional[float]
    reached: Optional[int]
    train_seconds: Optional[float]
    speedup: Optional[float]
    speedup_interval: Optional[Interval]
    problem: str
    footnotes: tuple[int, ...]


@dataclass(frozen=True)
class AccuracyTable:
    """The trainings of one model; `target` is the least top-1 asked for, 0 for none.

    `reference_precision` is what speedups are relative to; empty when there is none.
    """

    model: str
    epochs: int
    target: float
    reference_precision: str
    rows: tuple[AccuracyRow, ...]

    @property
    def title(self) -> str:
        return f"{self.model}: training to accuracy, {self.epochs} epochs"


def make_accuracy_tables(frame: "DataFrame", footnotes: Footnotes) -> tuple[AccuracyTable, ...]:
    """One table per model, in the order of the matrix."""
    trained = frame[(frame["mode"] == TRAIN) & (frame.epochs > 0)]
    return tuple(
        _make_table(list_rows(cases), find_reference(cases), footnotes)
        for _, cases in trained.groupby("model", sort=False)
    )


def _make_table(rows: list[CaseRow], reference: str, footnotes: Footnotes) -> AccuracyTable:
    return AccuracyTable(
        model=rows[0].model,
        epochs=rows[0].epochs,
        target=max(row.accuracy.target for row in rows),
        reference_precision=reference,
        rows=tuple(_make_row(row, footnotes) for row in rows),
    )


def _make_row(row: CaseRow, footnotes: Footnotes) -> AccuracyRow:
    accuracy = row.accuracy
    notes = [*row.table_notes, *list_ratio_notes(row.train_speedup)]
    return AccuracyRow(
        case_id=row.case_id,
        label=make_label(row, set(VARIANT_AXES) - {"data"}),
        precision=row.precision,
        topology=row.topology,
        batch_size=row.batch_size_text,
        planned_seeds=row.repeats_planned,
        top1=accuracy.top1,
        average=accuracy.average,
        deviation=accuracy.deviation,
        epochs=accuracy.epochs,
        reached=accuracy.reached,
        train_seconds=accuracy.train_seconds,
        speedup=row.train_speedup.value,
        speedup_interval=row.train_speedup.interval,
        problem=row.problem,
        footnotes=footnotes.number_all(notes),
    )
