"""Figures of training to accuracy -> NVIDIA's tables: time to train, and top-1 over the seeds."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Optional

from dlperf_slurm.reports.layouts.document import (
    ABSENT,
    Draft,
    divide,
    format_ratio,
    group_figures,
    list_topologies,
    name_device_counts,
)
from dlperf_slurm.reports.layouts.figures import LayoutFigure
from dlperf_slurm.reports.layouts.precision_pairs import Pair, name_precision, pair_precisions
from dlperf_slurm.reports.text import Grid

# the unit of a table's times, by what the longest of them reaches
_UNITS = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))

_Column = tuple[str, ...]


def make_accuracy_grids(figures: Sequence[LayoutFigure], draft: Draft) -> Iterator[Grid]:
    """Two tables per model, framework and pair of precisions; the second for several seeds."""
    trained = [figure for figure in figures if figure.top1]
    for group in group_figures(trained, lambda f: (f.model, f.label, f.compiler)).values():
        for pair in pair_precisions(group, draft):
            shown = [figure for figure in group if figure.precision in pair.precisions]
            yield _make_time_grid(shown, pair, draft)
            if any(len(figure.top1) > 1 for figure in shown):
                yield _make_seeds_grid(shown, pair, draft)


def _make_time_grid(figures: Sequence[LayoutFigure], pair: Pair, draft: Draft) -> Grid:
    points = draft.index(figures, lambda figure: (figure.precision, figure.topology))
    topologies = list_topologies(figures)
    longest = max(figure.train_seconds or 0.0 for figure in figures)
    size, unit = next((one for one in _UNITS if longest >= one[0]), _UNITS[-1])
    found = {p: [points.get((p, topology)) for topology in topologies] for p in pair.precisions}
    columns: list[_Column] = [("GPUs", *name_device_counts(topologies))]
    for precision, own in found.items():
        columns.append((f"Accuracy - {name_precision(precision)}", *map(_format_average, own)))
    for precision, own in found.items():
        times = (ABSENT if f is None else f"{(f.train_seconds or 0) / size:.2f}" for f in own)
        columns.append((f"Time to train - {name_precision(precision)}", *times))
    if pair.is_complete:
        pairs = zip(found[pair.reduced], found[pair.reference])
        ratios = (format_ratio(divide(_get_time(base), _get_time(f))) for f, base in pairs)
        columns.append(("Time to train - speedup", *ratios))
    header, *rows = zip(*columns)
    return Grid(
        title=f"{_make_title(figures[0])}, time to train",
        header=header,
        rows=tuple(rows),
        text_columns=1,
        caption=f"top-1 in %, average over seeds; times in {unit}, medians, with the validations",
    )


def _get_time(figure: Optional[LayoutFigure]) -> Optional[float]:
    return None if figure is None else figure.train_seconds


def _make_seeds_grid(figures: Sequence[LayoutFigure], pair: Pair, draft: Draft) -> Grid:
    points = draft.index(figures, lambda figure: (figure.precision, figure.topology))
    topologies = list_topologies(figures)
    columns: list[_Column] = [
        ("# of epochs", *(str(figures[0].epochs) for _ in topologies)),
        ("GPUs", *name_device_counts(topologies)),
    ]
    for name, format_cell in _STATISTICS.items():
        for precision in pair.precisions:
            own = [points.get((precision, topology)) for topology in topologies]
            columns.append((f"{name_precision(precision)} {name}", *map(format_cell, own)))
    header, *rows = zip(*columns)
    counts = " and ".join(map(str, sorted({len(figure.top1) for figure in figures})))
    return Grid(
        title=f"{_make_title(figures[0])}, over seeds",
        header=header,
        rows=tuple(rows),
        text_columns=2,
        caption=f"top-1 in %, {counts} seeds; the standard deviation (n - 1) is of fractions",
    )


def _format_average(figure: Optional[LayoutFigure]) -> str:
    return ABSENT if figure is None else f"{100 * statistics.fmean(figure.top1):.3f}"


def _format_deviation(figure: Optional[LayoutFigure]) -> str:
    if figure is None or len(figure.top1) < 2:
        return ABSENT
    return f"{statistics.stdev(figure.top1):.5f}"


def _format_least(figure: Optional[LayoutFigure]) -> str:
    return ABSENT if figure is None else f"{100 * min(figure.top1):.3f}"


def _format_most(figure: Optional[LayoutFigure]) -> str:
    return ABSENT if figure is None else f"{100 * max(figure.top1):.3f}"


# in NVIDIA's order and words
_STATISTICS: dict[str, Callable[[Optional[LayoutFigure]], str]] = {
    "avg top1": _format_average,
    "standard deviation": _format_deviation,
    "minimum top1": _format_least,
    "maximum top1": _format_most,
}


def _make_title(figure: LayoutFigure) -> str:
    compiler = "" if figure.compiler == "none" else f" {figure.compiler}"
    return f"{figure.model}: {figure.label}{compiler}, training to accuracy"
