"""Series over a common x axis -> a figure with one panel, or with a panel per series."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.reports.plots.style import (
    FAINT,
    MUTED,
    WIDE_INCHES,
    WIDTH_INCHES,
    add_legend,
    find_legend_inches,
    list_handles,
    mark_series,
    open_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# more lines in one panel are hard to distinguish
MOST_LINES = 4
PANEL_COLUMNS = 3

# values with a larger ratio get a logarithmic axis
LINEAR_RATIO = 4.0
# distance between error bars at the same x, as a share of the axis
DODGE = 0.014
# factor above the largest value, as space for its marker
HEADROOM = 1.06

# margins of panels that are placed by hand, for titles, tick labels and axis labels; COLUMN_GAP is
# a share of the panel width
TITLE_INCHES = 0.26
BOTTOM_INCHES = 0.5
ROW_GAP_INCHES = 0.5
LEFT_INCHES = 0.62
RIGHT_INCHES = 0.12
COLUMN_GAP = 0.1


@dataclass(frozen=True)
class PlotPoint:
    """A point of a series with the ends of its error bar, or None without a bar."""

    x: float
    y: float
    low: Optional[float] = None
    high: Optional[float] = None


@dataclass(frozen=True)
class PlotSeries:
    """Points that a line connects; `label` is the text in the legend."""

    label: str
    points: tuple[PlotPoint, ...]


@dataclass(frozen=True)
class PlotChart:
    """Series with their axes; `ticks` are x values with their labels.

    `ideal` has the points of a reference line. If the values are percentages (`is_share`), the y
    axis is never logarithmic.
    """

    series: tuple[PlotSeries, ...]
    x_label: str
    y_label: str
    ticks: tuple[tuple[float, str], ...]
    ideal: tuple[tuple[float, float], ...] = ()
    is_share: bool = False


def is_wide_range(values: Sequence[float]) -> bool:
    """Return whether positive values differ so much that they need a logarithmic axis.

    That is by a factor above LINEAR_RATIO. False if any value is not positive.
    """
    return min(values) > 0 and max(values) / min(values) > LINEAR_RATIO


def draw_chart(chart: PlotChart) -> "Figure":
    """Draw up to MOST_LINES series in one panel, or each of more in its own, the others faint."""
    if len(chart.series) <= MOST_LINES:
        return _draw_together(chart)
    figure, panels = open_panels(len(chart.series), chart.x_label, chart.y_label)
    for index, axes in enumerate(panels):
        _draw_one_of(axes, chart, index)
    return figure


def _draw_together(chart: PlotChart) -> "Figure":
    """Draw all series of a chart in one panel."""
    figure = open_figure(WIDTH_INCHES, 3.3)
    axes = figure.add_subplot()
    for index, series in enumerate(chart.series):
        draw_series(axes, chart, series, index, len(chart.series))
    _draw_ideal(axes, chart)
    set_scales(axes, chart)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    handles = list_handles([axes])
    if len(handles) == 1:
        axes.set_title(next(iter(handles)))
    else:
        add_legend(figure, handles)
    return figure


def open_panels(
    count: int, x_label: str, y_label: str, legend: Optional[Sequence[str]] = None
) -> "tuple[Figure, list[Axes]]":
    """Open a figure with `count` empty panels that share both axes, up to three per row.

    Returns the figure and its panels. With the names of a `legend`, panels are placed by hand, for
    y tick labels no wider than "100": matplotlib's automatic layout takes as long as drawing.
    """
    columns = min(count, PANEL_COLUMNS)
    rows = math.ceil(count / columns)
    height = 0.9 + rows * (1.75 if columns == PANEL_COLUMNS else 2.2)
    width = WIDE_INCHES if columns > 1 else WIDTH_INCHES
    figure = open_figure(width, height, is_by_hand=legend is not None)
    figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    if legend is not None:
        head = find_legend_inches(width, legend) + TITLE_INCHES
        panel = (height - head - BOTTOM_INCHES - (rows - 1) * ROW_GAP_INCHES) / rows
        figure.subplots_adjust(
            left=LEFT_INCHES / width,
            right=1 - RIGHT_INCHES / width,
            bottom=BOTTOM_INCHES / height,
            top=1 - head / height,
            wspace=COLUMN_GAP,
            hspace=ROW_GAP_INCHES / panel,
        )
    panels = list(figure.axes)
    for axes in panels[count:]:
        axes.set_visible(False)
    for axes in panels[max(0, count - columns) : count]:
        # the lowest panel of each column, which may not be in the last row
        axes.tick_params(labelbottom=True)
    figure.supxlabel(x_label)
    figure.supylabel(y_label)
    return figure, panels[:count]


def _draw_one_of(axes: "Axes", chart: PlotChart, index: int) -> None:
    """Draw series `index` of a chart in its own panel, with the others faint."""
    for other in chart.series:
        xs, ys = [p.x for p in other.points], [p.y for p in other.points]
        axes.plot(xs, ys, color=FAINT, linewidth=0.8, marker=".", markersize=3)
    _draw_ideal(axes, chart)
    draw_series(axes, chart, chart.series[index], index, 1)
    set_scales(axes, chart)
    axes.set_title(chart.series[index].label)


def draw_series(axes: "Axes", chart: PlotChart, series: PlotSeries, index: int, count: int) -> None:
    """Draw series `index` of `count` in a panel, shifted in x so that error bars do not overlap."""
    marks = mark_series(index)
    place = _find_placing(chart, index - (count - 1) / 2 if count > 1 else 0.0)
    xs = [place(point.x) for point in series.points]
    axes.plot(xs, [point.y for point in series.points], label=series.label, **marks)
    for x, point in zip(xs, series.points):
        if point.low is not None and point.high is not None:
            # drawn separately, because a ratio of medians may be outside its interval
            middle, half = (point.low + point.high) / 2, (point.high - point.low) / 2
            look = {"color": marks["color"], "capsize": 3, "linewidth": 1.2}
            axes.errorbar([x], [middle], yerr=[half], fmt="none", **look)


def _find_placing(chart: PlotChart, steps: float) -> Callable[[float], float]:
    """Return a function that shifts x by `steps` times DODGE, so that series stand apart.

    DODGE is a share of the axis: the shift looks the same on a linear and a logarithmic axis.
    """
    values = [x for x, _ in chart.ticks]
    if is_wide_range(values):
        factor = (max(values) / min(values)) ** (DODGE * steps)
        return lambda x: x * factor
    shift = DODGE * steps * (max(values) - min(values))
    return lambda x: x + shift


def _draw_ideal(axes: "Axes", chart: PlotChart) -> None:
    """Draw the reference line of a chart, if it has one."""
    if chart.ideal:
        xs, ys = zip(*chart.ideal)
        axes.plot(xs, ys, color=MUTED, linewidth=1, linestyle=(0, (2, 2)), label="ideal")


def set_scales(axes: "Axes", chart: PlotChart) -> None:
    """Set x ticks and scales of a panel.

    The y axis begins at zero, or is logarithmic if x and y have a wide range and y is no share.
    """
    xs = [x for x, _ in chart.ticks]
    if is_wide_range(xs):
        axes.set_xscale("log", base=2)
    axes.set_xticks(xs, [label for _, label in chart.ticks])
    axes.set_xticks([], minor=True)
    axes.margins(x=0.06)
    points = [point for series in chart.series for point in series.points]
    values = [point.y for point in points] + [y for _, y in chart.ideal]
    if is_wide_range(xs) and is_wide_range(values) and not chart.is_share:
        set_log_scale(axes, "y")
    else:
        highest = [point.high for point in points if point.high is not None]
        axes.set_ylim(0, HEADROOM * max(values + highest))


def set_log_scale(axes: "Axes", which: str, digits: Sequence[int] = (1, 2, 5)) -> None:
    """Make the axis "x" or "y" logarithmic, with plain numbers as labels of ticks at `digits`."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    if which == "x":
        axes.set_xscale("log")
    else:
        axes.set_yscale("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=digits))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
