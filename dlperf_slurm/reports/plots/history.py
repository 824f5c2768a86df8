"""Timelines of cases -> a figure with a panel for each."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dlperf_slurm.contract.times import parse_time
from dlperf_slurm.errors import InputError
from dlperf_slurm.reports.plots import Plot, make_plot
from dlperf_slurm.reports.plots.style import MUTED, RULE, SERIES_COLORS, WIDE_INCHES, open_figure
from dlperf_slurm.results.compare import FASTER, NOT_COMPARABLE, SLOWER
from dlperf_slurm.results.history.timeline import Point, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# a page that scrolls much further is read by nobody
MAX_PANELS = 40

_LINE_COLOR, _SLOWER_COLOR, _FASTER_COLOR = SERIES_COLORS[:3]
# a verdict, its marker and its colour: also told apart in grey
_MARKS = {SLOWER: ("v", _SLOWER_COLOR), FASTER: ("^", _FASTER_COLOR)}


def plot_history(timelines: Sequence[Timeline]) -> Plot:
    """One panel per case, over the time that its runs were made; InputError for too many."""
    if len(timelines) > MAX_PANELS:
        raise InputError(
            f"--plot: {len(timelines)} cases are more than the {MAX_PANELS} of one figure; choose "
            "with --case or --framework"
        )
    return make_plot(
        "history",
        "",
        "Throughput from run to run",
        "medians over repeats, with their 95 % intervals or the range of too few repeats; "
        "triangles point the way of a verdict against the run before, crosses are runs without a "
        "figure, vertical lines other work or changed software or machine; no axis begins at zero",
        lambda: _draw(timelines),
    )


def _draw(timelines: Sequence[Timeline]) -> "Figure":
    # it has no types
    dates: Any = import_module("matplotlib.dates")
    figure = open_figure(WIDE_INCHES, 0.6 + 1.7 * len(timelines))
    panels: Any = figure.subplots(len(timelines), 1, sharex=True, squeeze=False)
    for axes, timeline in zip(panels.flat, timelines):
        _draw_panel(axes, timeline)
    locator = dates.AutoDateLocator(minticks=3, maxticks=8)
    last = panels[-1, 0]
    last.xaxis.set_major_locator(locator)
    last.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    last.set_xlabel("created (UTC)")
    return figure


def _draw_panel(axes: "Axes", timeline: Timeline) -> None:
    axes.set_title(timeline.title)
    axes.set_ylabel(timeline.unit)
    measured = [point for point in timeline.points if point.median is not None]
    times: Any = [parse_time(point.entry.created_at) for point in measured]
    axes.plot(times, [p.median or 0.0 for p in measured], color=_LINE_COLOR, linewidth=1)
    for point in timeline.points:
        _draw_point(axes, point)


def _draw_point(axes: "Axes", point: Point) -> None:
    time: Any = parse_time(point.entry.created_at)
    verdict = point.comparison.verdict if point.comparison else ""
    if point.comparison and (point.comparison.changes or verdict == NOT_COMPARABLE):
        axes.axvline(time, color=RULE, linewidth=1.5, zorder=0)
    if point.median is None:
        axes.plot(
            [time], [0.05], "x", color=MUTED, transform=axes.get_xaxis_transform(), clip_on=False
        )
        return
    marker, color = _MARKS.get(verdict, ("o", _LINE_COLOR))
    samples = point.entry.samples_per_s
    low, high = min(samples), max(samples)
    if point.interval is not None:
        low, high = point.interval.low, point.interval.high
    bar = [[point.median - low], [high - point.median]]
    axes.errorbar([time], [point.median], yerr=bar, fmt=marker, color=color, capsize=3)
