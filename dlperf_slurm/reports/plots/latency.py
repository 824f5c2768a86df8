"""A table of latencies -> a batch's percentiles over batch size, a panel per precision."""

from typing import TYPE_CHECKING, Optional

from dlperf_slurm.reports.plots import Plot, make_plot
from dlperf_slurm.reports.plots.lines import (
    Chart,
    Point,
    Series,
    draw_series,
    open_panels,
    set_scales,
)
from dlperf_slurm.reports.plots.scaling import count_repeats, describe_bars, find_bar, make_point
from dlperf_slurm.reports.plots.style import add_legend, list_handles
from dlperf_slurm.reports.tables import ShownCase
from dlperf_slurm.reports.tables.latency import LatencyTable
from dlperf_slurm.stats.median import LATENCY_PERCENTILES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# the five of the tables lie too close to each other
SHOWN_PERCENTILES = {50: "median", 90: "90 %", 99: "99 %", 100: "slowest"}


def plot_latency(table: LatencyTable) -> Optional[Plot]:
    """The plot of latency over batch sizes; None where there are no two of these."""
    cases = _list_cases(table)
    if len({_find_batch_size(case) for case in cases}) < 2:
        return None
    caption = (
        f"Points: medians over repeats, {count_repeats(cases)}, of the repeat's median, 90 %, 99 % "
        f"and slowest batch; all ranks' batches alike; {describe_bars(cases)}."
    )
    return make_plot("latency", table.title, "Latency of a batch", caption, lambda: _draw(table))


def _list_cases(table: LatencyTable) -> list[ShownCase]:
    return [row for row in table.rows if row.latency is not None]


def _find_batch_size(case: ShownCase) -> float:
    return float(case.batch_sizes[0])


def _draw(table: LatencyTable) -> "Figure":
    precisions = list(dict.fromkeys(case.precision for case in _list_cases(table)))
    chart = make_chart(table, precisions)
    figure, panels = open_panels(len(precisions), chart.x_label, chart.y_label)
    per_panel = len(SHOWN_PERCENTILES)
    for number, (axes, precision) in enumerate(zip(panels, precisions)):
        lines = chart.series[number * per_panel : (number + 1) * per_panel]
        for index, series in enumerate(lines):
            draw_series(axes, chart, series, index, 1)
        set_scales(axes, chart)
        axes.set_title(precision)
    add_legend(figure, list_handles(panels))
    return figure


def make_chart(table: LatencyTable, precisions: list[str]) -> Chart:
    """All percentiles of the first precision, then those of the next."""
    cases = _list_cases(table)
    return Chart(
        series=tuple(
            _make_series(label, percent, [case for case in cases if case.precision == precision])
            for precision in precisions
            for percent, label in SHOWN_PERCENTILES.items()
        ),
        x_label="batch size per device",
        y_label="latency of a batch, ms",
        ticks=tuple((size, f"{size:g}") for size in sorted(set(map(_find_batch_size, cases)))),
    )


def _make_series(label: str, percent: int, cases: list[ShownCase]) -> Series:
    # the first value is the mean
    index = 1 + LATENCY_PERCENTILES.index(percent)
    points = (_make_point(case, index) for case in cases)
    return Series(label, tuple(point for point in points if point is not None))


def _make_point(case: ShownCase, index: int) -> Optional[Point]:
    """One of the latency's values in ms, with its interval, or the range of too few repeats."""
    value = case.latency.values[index] if case.latency else None
    if case.latency is None or value is None:
        return None
    bar = find_bar(case.latency.intervals[index], case.latency.units[index])
    return make_point(_find_batch_size(case), 1000 * value, bar and bar.scale(1000))
