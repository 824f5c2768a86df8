"""Outcomes of training to accuracy -> top-1 and time to train over the seeds, as NVIDIA's."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm.contract.record import Record
from dlperf_slurm.results.cases import (
    VARIANT_AXES,
    choose_reference,
    make_label,
    name_problem,
    number_footnotes,
    number_ratio_footnotes,
)
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.stats.median import Interval, find_median
from dlperf_slurm.stats.rank_sum import find_ratio_interval


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


def make_accuracy_tables(
    cases: Sequence[CaseOutcomes], footnotes: Footnotes
) -> tuple[AccuracyTable, ...]:
    """One table per model, in the order of the matrix."""
    models: dict[str, list[CaseOutcomes]] = {}
    for outcomes in cases:
        if outcomes.case.epochs:
            models.setdefault(outcomes.case.model, []).append(outcomes)
    return tuple(_make_table(model, group, footnotes) for model, group in models.items())


def _make_table(model: str, cases: Sequence[CaseOutcomes], footnotes: Footnotes) -> AccuracyTable:
    reference = choose_reference({c.case.axes.precision for c in cases if c.records})
    targets = {record.case.training.target_top1 for c in cases for record in c.records}
    return AccuracyTable(
        model=model,
        epochs=cases[0].case.epochs,
        target=max(targets, default=0.0),
        reference_precision=reference,
        rows=tuple(_make_row(c, _find_base(c, cases, reference), footnotes) for c in cases),
    )


def _find_base(
    outcomes: CaseOutcomes, cases: Sequence[CaseOutcomes], reference: str
) -> Optional[CaseOutcomes]:
    """The case in the reference precision: that of the same batch size, else the only one.

    NVIDIA's speedups are of 192 images over 96 in fp32.
    """
    alike = [
        c
        for c in cases
        if c.records
        and c.case.axes.precision == reference
        and c.case.axes.topology == outcomes.case.axes.topology
        and make_label(c, VARIANT_AXES) == make_label(outcomes, VARIANT_AXES)
    ]
    same = [c for c in alike if c.case.batch_size_text == outcomes.case.batch_size_text]
    found = same or alike
    return found[0] if len(found) == 1 else None


def _make_row(
    outcomes: CaseOutcomes, base: Optional[CaseOutcomes], footnotes: Footnotes
) -> AccuracyRow:
    case, records = outcomes.case, outcomes.records
    top1 = tuple(record.epochs[-1].top1 for record in records)
    own = _list_train_seconds(outcomes)
    base_seconds = [] if base is None else _list_train_seconds(base)
    speedup = find_median(base_seconds) / find_median(own) if own and base_seconds else None
    interval = None if base is outcomes else find_ratio_interval(own, base_seconds)
    numbers = number_footnotes(outcomes, footnotes)
    if speedup is not None and base is not outcomes:
        numbers += number_ratio_footnotes(speedup, interval, footnotes)
    return AccuracyRow(
        case_id=case.case_id,
        label=make_label(outcomes, set(VARIANT_AXES) - {"data"}),
        precision=case.axes.precision,
        topology=case.axes.topology,
        batch_size=case.batch_size_text,
        planned_seeds=0 if case.reason else case.repeats,
        top1=top1,
        average=statistics.fmean(top1) if top1 else None,
        deviation=statistics.stdev(top1) if len(top1) > 1 else None,
        epochs=find_median([float(len(record.epochs)) for record in records]) if records else None,
        reached=_count_reached(records),
        train_seconds=find_median(own) if own else None,
        speedup=speedup,
        speedup_interval=interval,
        problem="" if records else name_problem(outcomes),
        footnotes=numbers,
    )


def _count_reached(records: Sequence[Record]) -> Optional[int]:
    if not any(record.case.training.target_top1 for record in records):
        return None
    return sum(r.epochs[-1].top1 >= r.case.training.target_top1 for r in records)


def _list_train_seconds(outcomes: CaseOutcomes) -> list[float]:
    return [record.epochs[-1].elapsed_seconds for record in outcomes.records]
