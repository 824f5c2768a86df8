"""Outcomes and a published source -> each case beside the published figure nearest to it."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.results.cases import (
    find_batch_sizes,
    find_planned_batch_size,
    find_unit,
    list_samples_per_s,
    name_problem,
)
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.published import PublishedFigure, read_source
from dlperf_slurm.stats.median import find_median


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


def make_against_table(name: str, cases: Sequence[CaseOutcomes]) -> AgainstTable:
    """One row for each figure that is nearest to a case: variants and machines that tie have each.

    InputError lists the known sources.
    """
    figures = read_source(name)
    rows = [row for outcomes in cases for row in _list_rows(outcomes, figures)]
    return AgainstTable(name, figures[0].source, tuple(rows))


def _list_rows(outcomes: CaseOutcomes, figures: Sequence[PublishedFigure]) -> list[AgainstRow]:
    nearest = find_nearest(outcomes, figures)
    return [_make_row(outcomes, figure) for figure in nearest or (None,)]


def find_nearest(
    outcomes: CaseOutcomes, figures: Sequence[PublishedFigure]
) -> list[PublishedFigure]:
    """Of the same model and mode; then framework, precision, compiler, devices, batch size."""
    case = outcomes.case
    alike = [
        figure
        for figure in figures
        if figure.model == case.model and bool(figure.latency_ms) == (case.axes.mode == INFER)
    ]
    distances = [_measure_distance(outcomes, figure) for figure in alike]
    smallest = min(distances, default=())
    return [figure for figure, distance in zip(alike, distances) if distance == smallest]


def _measure_distance(outcomes: CaseOutcomes, figure: PublishedFigure) -> tuple[float, ...]:
    case, topology = outcomes.case, parse_topology(outcomes.case.axes.topology)
    return (
        figure.framework != case.axes.framework,
        figure.precision != case.axes.precision,
        figure.precision.partition("-")[0] != case.axes.precision.partition("-")[0],
        abs(math.log2(figure.world_size / topology.world_size)),
        figure.nodes != topology.nodes,
        _measure_batch_distance(_find_batch_size(outcomes), figure.batch_size_per_device),
        figure.compiler != case.axes.compiler,
        # of two that are as near the smaller one
        figure.world_size,
        figure.batch_size_per_device,
    )


def _measure_batch_distance(ours: int, theirs: int) -> float:
    return abs(math.log2(theirs / ours)) if ours and theirs else math.inf


def _find_batch_size(outcomes: CaseOutcomes) -> int:
    """What was measured, or planned when nothing was; the largest that a search found."""
    return max(find_batch_sizes(outcomes), default=find_planned_batch_size(outcomes.case))


def _make_row(outcomes: CaseOutcomes, figure: Optional[PublishedFigure]) -> AgainstRow:
    samples = list_samples_per_s(outcomes)
    median = find_median(samples) if samples else None
    return AgainstRow(
        case_id=outcomes.case.case_id,
        median=median,
        problem="" if samples else name_problem(outcomes),
        unit=find_unit(outcomes.case.model),
        hardware=describe_hardware(outcomes),
        figure=figure,
        differences=() if figure is None else _list_differences(outcomes, figure),
        ratio=None if figure is None or median is None else median / figure.samples_per_s,
    )


def _list_differences(outcomes: CaseOutcomes, figure: PublishedFigure) -> tuple[str, ...]:
    """What of theirs is not as ours, in their values."""
    case, topology = outcomes.case, parse_topology(outcomes.case.axes.topology)
    differences = [
        f"{name} {theirs}"
        for name, theirs, ours in (
            ("framework", figure.framework, case.axes.framework),
            ("precision", figure.precision, case.axes.precision),
            ("nodes", figure.nodes, topology.nodes),
            ("devices", figure.world_size, topology.world_size),
            ("compiler", figure.compiler, case.axes.compiler),
        )
        if theirs != ours
    ]
    if figure.batch_size_per_device != _find_batch_size(outcomes):
        size = figure.batch_size_per_device or "not printed"
        differences.append(f"batch size {size}")
    return tuple(differences)


def describe_hardware(outcomes: CaseOutcomes) -> str:
    """The devices of the first sound record by their names, on how many nodes."""
    if not outcomes.records:
        return ""
    record = outcomes.records[0]
    names = Counter(rank.device_name for rank in record.ranks if rank.device_name)
    if record.case.device == "cpu":
        names = Counter({record.platform.get("cpu_model") or "cpu": record.case.world_size})
    devices = " and ".join(f"{count}x {name}" for name, count in sorted(names.items()))
    nodes = record.case.nodes
    return f"{devices or 'not recorded'}, {nodes} {'node' if nodes == 1 else 'nodes'}"
