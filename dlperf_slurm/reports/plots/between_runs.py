"""A comparison or history of runs -> figures of speed ratios, and of throughput over time."""

from collections.abc import Sequence
from importlib import import_module
from math import nan
from typing import TYPE_CHECKING, Any

from dlperf_slurm.contract.times import parse_time
from dlperf_slurm.errors import InputError
from dlperf_slurm.plain_text import count_things
from dlperf_slurm.reports.comparison_text import find_interval
from dlperf_slurm.reports.plots import Plot, make_plot
from dlperf_slurm.reports.plots.style import MUTED, RULE, SERIES_COLORS, WIDE_INCHES, open_figure
from dlperf_slurm.results.columns import list_records
from dlperf_slurm.results.compare import MEAN_LATENCY, Row, RunComparison
from dlperf_slurm.results.history.entries import describe_machine
from dlperf_slurm.results.history.timeline import get_timeline_title
from dlperf_slurm.results.significance import EQUIVALENT, FASTER, NOT_COMPARABLE, SLOWER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

# limits the height of the figure
MAX_PANELS = 40

_NEUTRAL_COLOR, _SLOWER_COLOR, _FASTER_COLOR = SERIES_COLORS[:3]
# the marker and colour of each verdict; markers differ for prints in grey
_RATIO_MARKS = {
    SLOWER: ("<", _SLOWER_COLOR),
    FASTER: (">", _FASTER_COLOR),
    EQUIVALENT: ("o", _NEUTRAL_COLOR),
}
_UNDECIDED_MARK = ("x", MUTED)
_TIMELINE_MARKS = {SLOWER: ("v", _SLOWER_COLOR), FASTER: ("^", _FASTER_COLOR)}


def plot_comparison(compared: RunComparison) -> Plot:
    """Plot speed ratios of run B over run A, with a row per case and quantity that has one."""
    shown = list_records(compared.pairs[compared.pairs.speed_ratio.notna()])
    limit = "" if compared.limit is None else "; dashed: the allowed slowdown"
    runs = (
        f"{name}: {run.run_id}, site {run.site_name}, {run.created_at[:10]}, {hardware}"
        for name, run, hardware in (
            ("A", compared.manifest_a, compared.hardware_a),
            ("B", compared.manifest_b, compared.hardware_b),
        )
    )
    return make_plot(
        "comparison",
        "; ".join(runs),
        "Speed of run B over run A",
        "ratio of medians over repeats, with a 95 % interval for that ratio only, if there are "
        "enough repeats; triangles: significantly faster or slower (all cases tested together); "
        f"circles: equivalent within {100 * compared.margin:g} %; crosses: undecided; no bar: too "
        f"few repeats{limit}",
        lambda: _draw_ratios(compared, shown),
    )


def _draw_ratios(compared: RunComparison, shown: Sequence[Row]) -> "Figure":
    """Draw a row for each of the `shown` rows of `compared.pairs`, the first on top."""
    height = max(1, len(shown))
    figure = open_figure(WIDE_INCHES, 1.0 + 0.3 * height)
    axes = figure.add_subplot()
    axes.axvline(1.0, color=MUTED, linewidth=1)
    if compared.limit is not None:
        axes.axvline(1.0 - compared.limit, color=MUTED, linewidth=1, linestyle=(0, (5, 2)))
    for row, pair in enumerate(shown):
        marker, color = _RATIO_MARKS.get(pair["verdict"], _UNDECIDED_MARK)
        axes.plot([pair["speed_ratio"]], [row], marker=marker, color=color)
        interval = find_interval(pair)
        if interval is not None:
            # drawn separately, because the ratio of medians may be outside its interval
            middle, half = (interval.low + interval.high) / 2, (interval.high - interval.low) / 2
            axes.errorbar([middle], [row], xerr=[half], fmt="none", color=color, capsize=3)
    names = [pair["case_id"] + ", latency" * (pair["quantity"] == MEAN_LATENCY) for pair in shown]
    axes.set_yticks(range(len(shown)), names)
    axes.set_ylim(height - 0.5, -0.5)
    axes.set_title("" if shown else "no case was measured in both runs")
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("speed of run B / speed of run A (right of 1: B is faster)")
    return figure


def plot_history(history: "DataFrame") -> Plot:
    """Plot throughput over time, with a panel for each timeline (a case with one model size).

    `history` is from `make_history`. Raises InputError for more than MAX_PANELS timelines.
    """
    count = history.timeline.nunique()
    if count > MAX_PANELS:
        raise InputError(
            f"--plot: {count} cases do not fit into one figure (at most {MAX_PANELS}); select "
            "some with --case or --framework"
        )
    runs = history.drop_duplicates("run_id").sort_values("created_at").run_id
    words = [
        ", ".join(dict.fromkeys(history.model)),
        "; ".join(dict.fromkeys(filter(None, map(describe_machine, history.provenance)))),
        f"{count_things(len(runs), 'run')}, {runs.iloc[0]} to {runs.iloc[-1]}",
    ]
    return make_plot(
        "history",
        "; ".join(filter(None, words)),
        "Throughput from run to run (higher: faster)",
        "points: medians over repeats; bars: 95 % intervals or, with too few repeats, from the "
        "smallest to the largest value; triangles: significantly faster or slower than the "
        "previous run; crosses: runs without a result; vertical lines: different workload, "
        "software or hardware; the line is broken where runs are not comparable; the axes do not "
        "begin at zero",
        lambda: draw_timelines(history),
    )


def draw_timelines(history: "DataFrame") -> "Figure":
    """Draw a panel for each timeline (case), from top to bottom, over a common time axis."""
    # matplotlib.dates has no type annotations
    dates: Any = import_module("matplotlib.dates")
    timelines = history.groupby("timeline")
    figure = open_figure(WIDE_INCHES, 0.6 + 1.7 * len(timelines))
    panels: Any = figure.subplots(len(timelines), 1, sharex=True, squeeze=False)
    for axes, (_, runs) in zip(panels.flat, timelines):
        _draw_panel(axes, list_records(runs))
    locator = dates.AutoDateLocator(minticks=3, maxticks=8)
    last = panels[-1, 0]
    last.xaxis.set_major_locator(locator)
    last.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    last.set_xlabel("creation of the run (UTC)")
    return figure


def _draw_panel(axes: "Axes", runs: Sequence[Row]) -> None:
    """Draw the runs of one timeline in a panel; the line breaks where runs are not comparable."""
    axes.set_title(get_timeline_title(runs[0]["case_id"], runs[0]["sizes"]))
    axes.set_ylabel(runs[0]["unit"])
    points: list[tuple[Any, float]] = []
    for run in (run for run in runs if run["median"] is not None):
        time = parse_time(run["created_at"])
        # matplotlib draws no line to a missing value
        points += [(time, nan)] * (run["verdict"] == NOT_COMPARABLE) + [(time, run["median"])]
    times, medians = ([point[i] for point in points] for i in (0, 1))
    axes.plot(times, medians, color=_NEUTRAL_COLOR, linewidth=1)
    for run in runs:
        _draw_run(axes, run)


def _draw_run(axes: "Axes", run: Row) -> None:
    """Draw the median of a run with its bar, or a cross; a vertical line marks changes."""
    time: Any = parse_time(run["created_at"])
    if run["changes"] or run["verdict"] == NOT_COMPARABLE:
        axes.axvline(time, color=RULE, linewidth=1.5, zorder=0)
    median, low, high = run["median"], run["interval_low"], run["interval_high"]
    if median is None:
        axes.plot(
            [time], [0.05], "x", color=MUTED, transform=axes.get_xaxis_transform(), clip_on=False
        )
        return
    marker, color = _TIMELINE_MARKS.get(run["verdict"], ("o", _NEUTRAL_COLOR))
    if low is None:
        low, high = min(run["samples_per_s"]), max(run["samples_per_s"])
    bar = [[median - low], [high - median]]
    axes.errorbar([time], [median], yerr=bar, fmt=marker, color=color, capsize=3)
