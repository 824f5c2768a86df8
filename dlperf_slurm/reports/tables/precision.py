"""Outcomes of training -> what reduced precision and compilers bring, by topology, as NVIDIA's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm.contract.topology import Topology, parse_topology
from dlperf_slurm.results.cases import (
    VARIANT_AXES,
    choose_reference,
    find_unit,
    list_samples_per_s,
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


def make_precision_tables(
    cases: Sequence[CaseOutcomes], footnotes: Footnotes
) -> tuple[PrecisionTable, ...]:
    """One table for each model and framework that has more than one precision or compiler.

    Where precisions share a batch size it has a table of its own; a precision with another one (as
    NVIDIA's 96 in fp32 beside 192 in mixed precision) stands beside them when each has just one. A
    precision or compiler that is left out everywhere has no place here: other tables say why.
    """
    groups: dict[tuple[str, str], list[CaseOutcomes]] = {}
    for outcomes in cases:
        axes = [axis for axis in VARIANT_AXES if axis != "compiler"]
        key = (outcomes.case.model, make_label(outcomes, axes))
        groups.setdefault(key, []).append(outcomes)
    return tuple(
        _make_table(key, part, footnotes)
        for key, group in groups.items()
        for part in _split_by_batch_size(_keep_planned(group))
        if len({c.case.axes.precision for c in part}) > 1
        or len({c.case.axes.compiler for c in part}) > 1
    )


def _keep_planned(cases: Sequence[CaseOutcomes]) -> list[CaseOutcomes]:
    """Without the precisions, and the compilers, of which no case was to be run."""
    planned = [c.case for c in cases if not c.case.reason]
    precisions = {case.axes.precision for case in planned}
    compilers = {case.axes.compiler for case in planned}
    return [
        c
        for c in cases
        if c.case.axes.precision in precisions and c.case.axes.compiler in compilers
    ]


def _split_by_batch_size(cases: Sequence[CaseOutcomes]) -> list[list[CaseOutcomes]]:
    by_precision: dict[str, set[str]] = {}
    for c in cases:
        by_precision.setdefault(c.case.axes.precision, set()).add(c.case.batch_size_text)
    if all(len(sizes) == 1 for sizes in by_precision.values()):
        return [list(cases)]
    sizes = dict.fromkeys(c.case.batch_size_text for c in cases)
    return [[c for c in cases if c.case.batch_size_text == size] for size in sizes]


def _make_table(
    key: tuple[str, str], cases: Sequence[CaseOutcomes], footnotes: Footnotes
) -> PrecisionTable:
    model, label = key
    compilers = tuple(dict.fromkeys(c.case.axes.compiler for c in cases))
    topologies = tuple(sorted({parse_topology(c.case.axes.topology) for c in cases}))
    precisions = dict.fromkeys(c.case.axes.precision for c in cases)
    reference = choose_reference({c.case.axes.precision for c in cases if c.records})
    points = {
        (c.case.axes.precision, c.case.axes.compiler, parse_topology(c.case.axes.topology)): c
        for c in cases
    }
    return PrecisionTable(
        model=model,
        label=label,
        unit=find_unit(model),
        compilers=compilers,
        reference_precision=reference,
        topologies=topologies,
        columns=tuple(
            PrecisionColumn(
                precision=precision,
                batch_size=next(
                    c for c in cases if c.case.axes.precision == precision
                ).case.batch_size_text,
                cells=tuple(
                    tuple(
                        _make_figure(points, (precision, compiler, topology), reference, footnotes)
                        for compiler in compilers
                    )
                    for topology in topologies
                ),
            )
            for precision in precisions
        ),
    )


_Point = tuple[str, str, Topology]


def _make_figure(
    points: Mapping[_Point, CaseOutcomes], point: _Point, reference: str, footnotes: Footnotes
) -> Figure:
    outcomes = points.get(point)
    if outcomes is None:
        return Figure("", None, None, None, "not in the matrix", ())
    precision, compiler, topology = point
    samples = list_samples_per_s(outcomes)
    smaller = [
        other for (p, c, other), found in points.items()
        if (p, c) == (precision, compiler) and found.records
    ]  # fmt: skip
    smallest = min(smaller, key=lambda t: (t.world_size, t), default=topology)
    speedup = _divide(outcomes, points.get((reference, compiler, topology)))
    weak_scaling = _divide(outcomes, points.get((precision, compiler, smallest)))
    interval = _find_interval(outcomes, points.get((reference, compiler, topology)))
    numbers = number_footnotes(outcomes, footnotes)
    if speedup is not None and precision != reference:
        numbers += number_ratio_footnotes(speedup, interval, footnotes)
    return Figure(
        case_id=outcomes.case.case_id,
        median=find_median(samples) if samples else None,
        speedup=speedup,
        weak_scaling=weak_scaling,
        problem="" if samples else name_problem(outcomes),
        footnotes=numbers,
        speedup_interval=interval,
    )


def _divide(outcomes: CaseOutcomes, base: Optional[CaseOutcomes]) -> Optional[float]:
    samples = list_samples_per_s(outcomes)
    base_samples = [] if base is None else list_samples_per_s(base)
    return find_median(samples) / find_median(base_samples) if samples and base_samples else None


def _find_interval(outcomes: CaseOutcomes, base: Optional[CaseOutcomes]) -> Optional[Interval]:
    if base is None or base is outcomes:
        return None
    return find_ratio_interval(list_samples_per_s(base), list_samples_per_s(outcomes))
