"""The tables of a run, one module each; what they share: a case with its footnotes, and cells."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from dlperf_slurm.reports.cells import Cell, Column, Number
from dlperf_slurm.results.cases import list_ratio_notes
from dlperf_slurm.results.footnotes import Footnotes, Note
from dlperf_slurm.results.frame import CaseRow
from dlperf_slurm.results.ratios import Ratio
from dlperf_slurm.stats.median import Interval


@dataclass(frozen=True)
class ShownCase(CaseRow):
    """A case in a table: its row of the frame, with the numbers of its footnotes."""

    footnotes: tuple[int, ...] = ()


# in the place of a case that the matrix does not have
NO_CASE = ShownCase("", "", 0, problem="not in the matrix")


def show_ratio(
    case: CaseRow, footnotes: Footnotes, ratio: Ratio, notes: Sequence[str] = ()
) -> ShownCase:
    """The case with the notes of every table, those of the ratio that this one has, and more."""
    return show_case(case, footnotes, [*case.table_notes, *list_ratio_notes(ratio), *notes])


def show_case(case: CaseRow, footnotes: Footnotes, notes: Iterable[Note]) -> ShownCase:
    return ShownCase(**vars(case), footnotes=footnotes.number_all(notes))


def make_throughput_cell(case: ShownCase) -> Cell:
    """Samples per second with their interval, or else their range."""
    count = len(case.samples)
    return Cell(
        case.samples_per_s,
        interval=case.interval,
        range=find_range(case.units),
        repeats=(count, case.repeats_planned) if 0 < count < case.repeats_planned else None,
        notes=case.footnotes,
    )


def make_tokens_cell(case: ShownCase) -> Cell:
    """The same in tokens per second, without what stands beside it already."""
    plain = replace(make_throughput_cell(case), hides_bounds=True, repeats=None, notes=())
    return replace(plain, form=Number(factor=case.tokens_per_sample or 1))


def list_throughput_columns(cases: Iterable[ShownCase], unit: str) -> list[Column[ShownCase]]:
    """The throughput in samples, and in tokens where the model has such."""
    in_samples = Column(unit, make_throughput_cell)
    if not any(case.tokens_per_sample for case in cases):
        return [in_samples]
    return [Column("tokens/s", make_tokens_cell), in_samples]


def make_plain_throughput_cell(case: ShownCase) -> Cell:
    """The same where another table shows how sure it is."""
    return replace(make_throughput_cell(case), hides_bounds=True, repeats=None)


def find_range(values: Sequence[float]) -> Optional[Interval]:
    """The range from the smallest to the largest value; None for fewer than two."""
    return Interval(min(values), max(values)) if len(values) > 1 else None


def make_count_cell(count: Optional[int], total: int) -> Cell:
    """Such as "2 of 3"."""
    return Cell(count, Number(".0f", unit=f" of {total}"))
