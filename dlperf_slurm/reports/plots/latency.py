"""A table of latencies -> a batch's percentiles over batch size, a panel per precision."""

from typing import TYPE_CHECKING, Optional

from dlperf_slurm.reports.plots import Plot, make_plot
from dlperf_slurm.reports.plots.lines import (
    Chart,
    Point,
    Series,
    draw_panels,
    draw_series,
    set_scales,
)
from dlperf_slurm.reports.plots.scaling import count_repeats, describe_bars, find_bar, make_point
from dlperf_slurm.reports.plots.style import add_legend
from dlperf_slurm.reports.tables.latency import LatencyRow, LatencyTable
from dlperf_slurm.stats.median import LATENCY_PERCENTILES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# the five of the tables lie too close to each other
SHOWN_PERCENTILES = {50: "median", 90: "90 %", 99: "99 %", 100: "slowest"}


def plot_latency(table: LatencyTable) -> Optional[Plot]:
    """None where there are no two batch sizes."""
    rows = _list_rows(table)
    if len({_find_batch_size(row) for row in rows}) < 2:
        return None
    caption = (
        f"Points: medians over repeats, {count_repeats(rows)}, of the repeat's median, 90 %, 99 % "
        f"and slowest batch; all ranks' batches alike; {describe_bars(rows)}."
    )
    return make_plot(
        "latency", table.title, "Latency of a batch", caption, lambda: _draw(table)
    )  # fmt: skip


def _list_rows(table: LatencyTable) -> list[LatencyRow]:
    return [row for row in table.rows if row.latency is not None]


def _find_batch_size(row: LatencyRow) -> float:
    return float(row.batch_sizes[0])


def _draw(table: LatencyTable) -> "Figure":
    rows = _list_rows(table)
    precisions = list(dict.fromkeys(row.precision for row in rows))
    chart = make_chart(table, precisions)
    per_panel = len(SHOWN_PERCENTILES)

    def draw_panel(axes: "Axes", panel: int) -> None:
        lines = chart.series[panel * per_panel : (panel + 1) * per_panel]
        for index, series in enumerate(lines):
            draw_series(axes, chart, series, index, 1)
        set_scales(axes, chart)
        axes.set_title(precisions[panel])

    figure = draw_panels(len(precisions), draw_panel, chart)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    add_legend(figure, dict(zip(labels, handles)))
    return figure


def make_chart(table: LatencyTable, precisions: list[str]) -> Chart:
    """All percentiles of the first precision, then those of the next."""
    rows = _list_rows(table)
    return Chart(
        series=tuple(
            _make_series(label, percent, [row for row in rows if row.precision == precision])
            for precision in precisions
            for percent, label in SHOWN_PERCENTILES.items()
        ),
        x_label="batch size per device",
        y_label="latency of a batch, ms",
        ticks=tuple((size, f"{size:g}") for size in sorted({_find_batch_size(r) for r in rows})),
    )


def _make_series(label: str, percent: int, rows: list[LatencyRow]) -> Series:
    # the first value is the mean
    index = 1 + LATENCY_PERCENTILES.index(percent)
    return Series(
        label,
        tuple(_make_point(row, index) for row in rows),
    )


def _make_point(row: LatencyRow, index: int) -> Point:
    """One of the latency's values, with its interval, or the range of too few repeats."""
    assert row.latency is not None, "rows without figures are left out"
    repeats = [latency.values[index] for latency in row.repeat_latencies]
    bar = find_bar(row.latency_intervals[index], repeats)
    return make_point(_find_batch_size(row), row.latency.values[index], bar, 1000)
