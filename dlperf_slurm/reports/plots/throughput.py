"""A table of throughputs -> throughput over devices, or of frameworks on the one topology."""

from typing import TYPE_CHECKING, Optional

from dlperf_slurm.reports.plots import Plot, make_plot
from dlperf_slurm.reports.plots.devices import (
    DEVICES_LABEL,
    describe_medians,
    find_bar,
    list_cells,
    list_columns,
    make_point,
    make_series,
    make_ticks,
    place_topologies,
)
from dlperf_slurm.reports.plots.lines import Chart, Point, draw_chart
from dlperf_slurm.reports.plots.style import INK, MUTED, WIDTH_INCHES, mark_series, open_figure
from dlperf_slurm.reports.tables.throughput import Cell, ThroughputTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_throughput(table: ThroughputTable) -> Optional[Plot]:
    """None where nothing was measured."""
    topologies = list(place_topologies(table))
    if not topologies:
        return None
    if len(topologies) == 1:
        title = f"Throughput on {topologies[0]}, {table.unit}"
        caption = f"{describe_medians(table)} Small dots: the repeats."
        draw = lambda: _draw_dots(table)  # noqa: E731
    else:
        title = f"Throughput over devices, {table.unit}"
        caption = describe_medians(table)
        draw = lambda: draw_chart(make_chart(table))  # noqa: E731
    return make_plot("throughput", table.title, title, caption, draw)


def make_chart(table: ThroughputTable) -> Chart:
    return Chart(
        series=make_series(table, _find_point),
        x_label=DEVICES_LABEL,
        y_label=f"throughput, {table.unit}",
        ticks=make_ticks(table),
    )


def _find_point(x: float, cell: Cell) -> Optional[Point]:
    if cell.median is None:
        return None
    return make_point(x, cell.median, find_bar(cell.interval, cell.samples_per_s))


def _draw_dots(table: ThroughputTable) -> "Figure":
    """A row for each framework, in the table's order from the top."""
    names = [name for name, _ in list_columns(table)]
    figure = open_figure(WIDTH_INCHES, 0.9 + 0.34 * len(names))
    axes = figure.add_subplot()
    for row, cell in enumerate(list_cells(table)):
        marks = mark_series(row)
        axes.plot(cell.samples_per_s, [row] * len(cell.samples_per_s), ".", color=MUTED)
        point = _find_point(0.0, cell)
        if point is not None and point.low is not None and point.high is not None:
            axes.plot([point.low, point.high], [row, row], color=marks["color"], linewidth=1.6)
        axes.plot([cell.median], [row], marker=marks["marker"], color=marks["color"])
        axes.annotate(
            f"{cell.median:.4g}", (cell.median or 0, row), (0, 6), textcoords="offset points",
            ha="center", fontsize=8, color=INK,
        )  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.7)
    axes.set_xlim(left=0)
    axes.grid(axis="x")
    axes.set_xlabel(f"throughput, {table.unit}")
    return figure
