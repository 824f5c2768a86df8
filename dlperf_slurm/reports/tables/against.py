"""A frame of cases and a published source -> each case beside the figure nearest to it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.reports.cells import Cell, Column, Number, Table, tabulate
from dlperf_slurm.results.frame import CaseRow, list_rows
from dlperf_slurm.results.published import PublishedFigure, read_source
from dlperf_slurm.results.ratios import divide

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class AgainstRow:
    """A case and a published figure; without one the source has none of this model and mode."""

    case: CaseRow
    figure: Optional[PublishedFigure]

    @property
    def theirs(self) -> Optional[float]:
        return self.figure.samples_per_s if self.figure else None

    @property
    def ratio(self) -> Optional[float]:
        """Ours over theirs; None where there is not both."""
        return divide(self.case.samples_per_s, self.theirs)

    @property
    def differences(self) -> tuple[str, ...]:
        """The values in which the two are not alike."""
        return () if self.figure is None else _list_differences(self.case, self.figure)


@dataclass(frozen=True)
class AgainstTable:
    """All cases of a run beside one published source."""

    name: str
    source: str
    rows: tuple[AgainstRow, ...]

    @property
    def title(self) -> str:
        return f"against {self.name}, published by {self.source}"


def make_against_table(name: str, frame: "DataFrame") -> AgainstTable:
    """One row for each figure that is nearest to a case: variants and machines that tie have each.

    InputError lists the known sources.
    """
    figures = read_source(name)
    rows = tuple(
        AgainstRow(case, figure)
        for case in list_rows(frame)
        for figure in find_nearest(case, figures) or (None,)
    )
    return AgainstTable(name, figures[0].source, rows)


def find_nearest(case: CaseRow, figures: Sequence[PublishedFigure]) -> list[PublishedFigure]:
    """The nearest values of the same model and mode.

    Framework counts most, then precision, compiler, devices and batch size.
    """
    alike = [
        figure
        for figure in figures
        if figure.model == case.model and bool(figure.latency_ms) == (case.mode == INFER)
    ]
    distances = [_measure_distance(case, figure) for figure in alike]
    smallest = min(distances, default=())
    return [figure for figure, distance in zip(alike, distances) if distance == smallest]


def _measure_distance(case: CaseRow, figure: PublishedFigure) -> tuple[float, ...]:
    return (
        figure.framework != case.framework,
        figure.precision != case.precision,
        figure.precision.partition("-")[0] != case.precision.partition("-")[0],
        abs(math.log2(figure.world_size / case.world_size)),
        figure.nodes != case.nodes,
        _measure_batch_distance(_find_batch_size(case), figure.batch_size_per_device),
        figure.compiler != case.compiler,
        # of two that are as near the smaller one
        figure.world_size,
        figure.batch_size_per_device,
    )


def _measure_batch_distance(ours: int, theirs: int) -> float:
    return abs(math.log2(theirs / ours)) if ours and theirs else math.inf


def _find_batch_size(case: CaseRow) -> int:
    """What was measured, or planned when nothing was; the largest that a search found."""
    return max(case.batch_sizes, default=case.planned_size)


def _list_differences(case: CaseRow, figure: PublishedFigure) -> tuple[str, ...]:
    differences = [
        f"{name} {theirs}"
        for name, theirs, ours in (
            ("framework", figure.framework, case.framework),
            ("precision", figure.precision, case.precision),
            ("nodes", figure.nodes, case.nodes),
            ("devices", figure.world_size, case.world_size),
            ("compiler", figure.compiler, case.compiler),
        )
        if theirs != ours
    ]
    if figure.batch_size_per_device != _find_batch_size(case):
        size = figure.batch_size_per_device or "not printed"
        differences.append(f"batch size {size}")
    return tuple(differences)


def tabulate_against(table: AgainstTable) -> Table:
    """Ours, theirs and the ratio, with the hardware of both and what else differs."""
    units = ", ".join(dict.fromkeys(row.case.unit for row in table.rows))
    words: list[Column[AgainstRow]] = [
        Column("case", lambda row: row.case.case_id),
        Column("our hardware", lambda row: row.case.hardware),
        Column("their hardware", lambda row: row.figure.hardware if row.figure else ""),
        Column("theirs differs in", _describe_differences),
        Column("published in", lambda row: row.figure.where if row.figure else ""),
    ]
    figures: list[Column[AgainstRow]] = [
        Column("ours", lambda row: Cell(row.case.samples_per_s, problem=row.case.problem)),
        Column("theirs", lambda row: row.theirs, missing="none"),
        Column("ours / theirs", lambda row: row.ratio, Number("#.3g"), "none"),
    ]
    caption = (
        f"{units}; of the same model the published figure that is nearest to the case, "
        "several where they tie"
    )
    return tabulate(table.title, words, figures, table.rows, caption)


def _describe_differences(row: AgainstRow) -> str:
    figure = row.figure
    if figure is None:
        return "none of this model and mode"
    # what of theirs has a variant: "W/O clip", the location of the data
    words = [figure.note, figure.data_location, figure.variable_update]
    return "; ".join([*row.differences, *filter(None, words)]) or "nothing known"
