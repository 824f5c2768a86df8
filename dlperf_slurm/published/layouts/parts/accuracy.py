"""Figures of training to accuracy -> NVIDIA's tables: time to train, and top-1 over the seeds."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Optional

from dlperf_slurm.published.grouping import group_by
from dlperf_slurm.published.layouts.parts.document import (
    Document,
    LayoutColumn,
    arrange,
    format_device_counts,
    list_topologies,
    make_layout_table,
    make_ratio_cell,
)
from dlperf_slurm.published.layouts.parts.figures import ABSENT, Figure
from dlperf_slurm.published.layouts.parts.precision_pairs import (
    PrecisionPair,
    format_precision,
    pair_precisions,
)
from dlperf_slurm.reports.cells import Cell, Table
from dlperf_slurm.results.number_formats import PERCENT, ScaledFormat

# units of times; a table has the largest one that its longest time reaches
_UNITS = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


def make_accuracy_tables(figures: Sequence[Figure], draft: Document) -> Iterator[Table]:
    """Yield a table of times to train per model, framework, compiler and pair of precisions.

    With several seeds there is a second table, of the top-1 accuracy over the seeds.
    """
    trained = [figure for figure in figures if figure.top1]
    for group in group_by(trained, lambda f: (f.model, f.label, f.compiler)).values():
        for pair in pair_precisions(group, draft):
            shown = [figure for figure in group if figure.precision in pair.precisions]
            yield _make_time_table(shown, pair, draft)
            if any(len(figure.top1) > 1 for figure in shown):
                yield _make_seeds_table(shown, pair, draft)


def _make_time_table(figures: Sequence[Figure], pair: PrecisionPair, draft: Document) -> Table:
    """Make a table with a row per topology: top-1, seeds that reached the target, time to train."""
    topologies = list_topologies(figures)
    found = arrange(figures, pair.precisions, topologies, draft)
    longest = max(figure.train_seconds or 0.0 for figure in figures)
    size, unit = next((one for one in _UNITS if longest >= one[0]), _UNITS[-1])
    columns: list[LayoutColumn] = [("GPUs", format_device_counts(topologies))]
    for precision, own in found.items():
        cells = [Cell(_average(figure), PERCENT, problem=ABSENT) for figure in own]
        columns.append((f"Accuracy - {format_precision(precision)}", cells))
    if any(figure.seeds_at_target is not None for figure in figures):
        for precision, own in found.items():
            reached = [
                ABSENT
                if figure.seeds_at_target is None
                else f"{figure.seeds_at_target:.0f} of {len(figure.top1)}"
                for figure in own
            ]
            columns.append((f"Reached - {format_precision(precision)}", reached))
    for precision, own in found.items():
        times = [Cell(f.train_seconds, ScaledFormat(factor=1 / size), problem=ABSENT) for f in own]
        columns.append((f"Time to train - {format_precision(precision)}", times))
    if pair.is_complete:
        pairs = zip(found[pair.reference], found[pair.reduced])
        ratios = [make_ratio_cell(base.train_seconds, f.train_seconds) for base, f in pairs]
        columns.append(("Time to train - speedup", ratios))
    return make_layout_table(
        title=f"{_make_title(figures[0])}, time to train",
        columns=columns,
        text_columns=1,
        caption=f"top-1 in % and times in {unit}: means over seeds; times include validation",
    )


def _make_seeds_table(figures: Sequence[Figure], pair: PrecisionPair, draft: Document) -> Table:
    """Make a table with a row per topology: mean, deviation, minimum, maximum top-1 over seeds."""
    topologies = list_topologies(figures)
    found = arrange(figures, pair.precisions, topologies, draft)
    columns: list[LayoutColumn] = [
        ("# of epochs", [str(figures[0].epochs) for _ in topologies]),
        ("GPUs", format_device_counts(topologies)),
    ]
    for name, (read, form) in _STATISTICS.items():
        for precision, own in found.items():
            cells = [Cell(read(figure), form, problem=ABSENT) for figure in own]
            columns.append((f"{format_precision(precision)} {name}", cells))
    counts = " and ".join(map(str, sorted({len(figure.top1) for figure in figures})))
    return make_layout_table(
        title=f"{_make_title(figures[0])}, statistics over seeds",
        columns=columns,
        text_columns=2,
        caption=f"top-1 in %, {counts} seeds; standard deviations (n - 1) are not in %: 0.001 is "
        "0.1 percentage points",
    )


def _average(figure: Figure) -> Optional[float]:
    """Return the mean top-1 accuracy over the seeds, a fraction; None if no seed has one."""
    return statistics.fmean(figure.top1) if figure.top1 else None


# in NVIDIA's order and terms
_STATISTICS: dict[str, tuple[Callable[[Figure], Optional[float]], ScaledFormat]] = {
    "avg top1": (_average, PERCENT),
    "standard deviation": (
        lambda figure: statistics.stdev(figure.top1) if len(figure.top1) > 1 else None,
        ScaledFormat(".5f"),
    ),
    "minimum top1": (lambda figure: min(figure.top1, default=None), PERCENT),
    "maximum top1": (lambda figure: max(figure.top1, default=None), PERCENT),
}


def _make_title(figure: Figure) -> str:
    compiler = "" if figure.compiler == "none" else f" {figure.compiler}"
    return f"{figure.model_title}: {figure.label}{compiler}, training to accuracy"
