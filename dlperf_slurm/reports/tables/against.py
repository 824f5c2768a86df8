"""A frame of cases and a published source -> each case beside the figure nearest to it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.results.frame import CaseRow, list_rows
from dlperf_slurm.results.published import PublishedFigure, read_source
from dlperf_slurm.results.ratios import divide

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class AgainstRow:
    """A case and a published figure; `differences` says in what they are not alike.

    Without a figure the source has none of this model and mode; `ratio` is ours over theirs, None
    where there is not both. `hardware` is that of the case's first sound record.
    """

    case_id: str
    median: Optional[float]
    problem: str
    unit: str
    hardware: str
    figure: Optional[PublishedFigure]
    differences: tuple[str, ...]
    ratio: Optional[float]


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
    rows = [row for case in list_rows(frame) for row in _list_rows(case, figures)]
    return AgainstTable(name, figures[0].source, tuple(rows))


def _list_rows(case: CaseRow, figures: Sequence[PublishedFigure]) -> list[AgainstRow]:
    nearest = find_nearest(case, figures)
    return [_make_row(case, figure) for figure in nearest or (None,)]


def find_nearest(case: CaseRow, figures: Sequence[PublishedFigure]) -> list[PublishedFigure]:
    """Of the same model and mode; then framework, precision, compiler, devices, batch size."""
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


def _make_row(case: CaseRow, figure: Optional[PublishedFigure]) -> AgainstRow:
    return AgainstRow(
        case_id=case.case_id,
        median=case.samples_per_s,
        problem=case.problem,
        unit=case.unit,
        hardware=case.hardware,
        figure=figure,
        differences=() if figure is None else _list_differences(case, figure),
        ratio=None if figure is None else divide(case.samples_per_s, figure.samples_per_s),
    )


def _list_differences(case: CaseRow, figure: PublishedFigure) -> tuple[str, ...]:
    """What of theirs is not as ours, in their values."""
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
