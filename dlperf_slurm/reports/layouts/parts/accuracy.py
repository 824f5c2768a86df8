"""Figures of training to accuracy -> NVIDIA's tables: time to train, and top-1 over the seeds."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Optional

from dlperf_slurm.reports.cells import PERCENT, Cell, Number, Table
from dlperf_slurm.reports.layouts.parts.document import (
    ABSENT,
    Draft,
    LayoutColumn,
    group_figures,
    list_topologies,
    make_layout_table,
    make_ratio_cell,
    name_device_counts,
)
from dlperf_slurm.reports.layouts.parts.figures import LayoutFigure
from dlperf_slurm.reports.layouts.parts.precision_pairs import Pair, name_precision, pair_precisions

# the unit of a table's times, by what the longest of them reaches
_UNITS = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


def make_accuracy_tables(figures: Sequence[LayoutFigure], draft: Draft) -> Iterator[Table]:
    """Two tables per model, framework and pair of precisions; the second for several seeds."""
    trained = [figure for figure in figures if figure.top1]
    for group in group_figures(trained, lambda f: (f.model, f.label, f.compiler)).values():
        for pair in pair_precisions(group, draft):
            shown = [figure for figure in group if figure.precision in pair.precisions]
            yield _make_time_table(shown, pair, draft)
            if any(len(figure.top1) > 1 for figure in shown):
                yield _make_seeds_table(shown, pair, draft)


def _make_time_table(figures: Sequence[LayoutFigure], pair: Pair, draft: Draft) -> Table:
    points = draft.index(figures, lambda figure: (figure.precision, figure.topology))
    topologies = list_topologies(figures)
    longest = max(figure.train_seconds or 0.0 for figure in figures)
    size, unit = next((one for one in _UNITS if longest >= one[0]), _UNITS[-1])
    found = {p: [points.get((p, topology)) for topology in topologies] for p in pair.precisions}
    columns: list[LayoutColumn] = [("GPUs", name_device_counts(topologies))]
    for precision, own in found.items():
        columns.append((f"Accuracy - {name_precision(precision)}", list(map(_average, own))))
    for precision, own in found.items():
        times = [Cell(_get_time(f), Number(factor=1 / size), problem=ABSENT) for f in own]
        columns.append((f"Time to train - {name_precision(precision)}", times))
    if pair.is_complete:
        pairs = zip(found[pair.reduced], found[pair.reference])
        ratios = [make_ratio_cell(_get_time(base), _get_time(f)) for f, base in pairs]
        columns.append(("Time to train - speedup", ratios))
    return make_layout_table(
        title=f"{_make_title(figures[0])}, time to train",
        columns=columns,
        text_columns=1,
        caption=f"top-1 in %, average over seeds; times in {unit}, medians, with the validations",
    )


def _get_time(figure: Optional[LayoutFigure]) -> Optional[float]:
    return None if figure is None else figure.train_seconds


def _make_seeds_table(figures: Sequence[LayoutFigure], pair: Pair, draft: Draft) -> Table:
    points = draft.index(figures, lambda figure: (figure.precision, figure.topology))
    topologies = list_topologies(figures)
    columns: list[LayoutColumn] = [
        ("# of epochs", [str(figures[0].epochs) for _ in topologies]),
        ("GPUs", name_device_counts(topologies)),
    ]
    for name, make_cell in _STATISTICS.items():
        for precision in pair.precisions:
            own = [points.get((precision, topology)) for topology in topologies]
            columns.append((f"{name_precision(precision)} {name}", list(map(make_cell, own))))
    counts = " and ".join(map(str, sorted({len(figure.top1) for figure in figures})))
    return make_layout_table(
        title=f"{_make_title(figures[0])}, over seeds",
        columns=columns,
        text_columns=2,
        caption=f"top-1 in %, {counts} seeds; the standard deviation (n - 1) is of fractions",
    )


def _average(figure: Optional[LayoutFigure]) -> Cell:
    return Cell(statistics.fmean(figure.top1) if figure else None, PERCENT, problem=ABSENT)


def _deviation(figure: Optional[LayoutFigure]) -> Cell:
    seeds = figure.top1 if figure else ()
    value = statistics.stdev(seeds) if len(seeds) > 1 else None
    return Cell(value, Number(".5f"), problem=ABSENT)


def _least(figure: Optional[LayoutFigure]) -> Cell:
    return Cell(min(figure.top1) if figure else None, PERCENT, problem=ABSENT)


def _most(figure: Optional[LayoutFigure]) -> Cell:
    return Cell(max(figure.top1) if figure else None, PERCENT, problem=ABSENT)


# in NVIDIA's order and words
_STATISTICS: dict[str, Callable[[Optional[LayoutFigure]], Cell]] = {
    "avg top1": _average,
    "standard deviation": _deviation,
    "minimum top1": _least,
    "maximum top1": _most,
}


def _make_title(figure: LayoutFigure) -> str:
    compiler = "" if figure.compiler == "none" else f" {figure.compiler}"
    return f"{figure.model}: {figure.label}{compiler}, training to accuracy"
