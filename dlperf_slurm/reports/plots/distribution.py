"""Step times of a table's cases -> their distribution functions, a panel per framework."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.reports.plots import Plot, make_plot
from dlperf_slurm.reports.plots.lines import is_wide_range, open_panels
from dlperf_slurm.reports.plots.scaling import list_columns
from dlperf_slurm.reports.plots.style import add_legend, list_handles, mark_series
from dlperf_slurm.reports.tables.throughput import ThroughputColumn, ThroughputTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# of a distribution: finer ones cannot be seen
MOST_POINTS = 200
# what is beyond would leave no room for the rest; the tables name stalls
SHOWN_PERCENT = 99
# from this ratio of the axis' ends on its ticks are powers of ten, before it 1, 2, 5, 10, ...
MOST_SUBDIVIDED = 30


def plot_distribution(
    table: ThroughputTable, step_seconds: Mapping[str, Sequence[float]]
) -> Optional[Plot]:
    """`step_seconds` by case id: the slowest rank's, all repeats together; None without any."""
    columns = [
        (name, column)
        for name, column in list_columns(table)
        if any(step_seconds.get(case.case_id) for case in column.measured)
    ]
    if not columns:
        return None
    counts = sorted({len(steps) for steps in _list_series(columns, step_seconds)})
    steps = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    caption = (
        f"Lines: share of a case's measured steps that took no longer; {steps} steps each, all "
        "repeats together, of each step the slowest rank's time. Marks: the median step. The axis "
        f"ends where {SHOWN_PERCENT} % of each case's steps do."
    )
    return make_plot(
        "step-times", table.title, "Distribution of step times", caption,
        lambda: _draw(columns, table.topologies, step_seconds),
    )  # fmt: skip


def _list_series(
    columns: Sequence[tuple[str, ThroughputColumn]],
    step_seconds: Mapping[str, Sequence[float]],
) -> list[Sequence[float]]:
    cases = [case for _, column in columns for case in column.measured]
    return [step_seconds[c.case_id] for c in cases if step_seconds.get(c.case_id)]


def _draw(
    columns: Sequence[tuple[str, ThroughputColumn]],
    topologies: Sequence[Topology],
    step_seconds: Mapping[str, Sequence[float]],
) -> "Figure":
    names = {
        str(topology): None
        for _, column in columns
        for topology, case in zip(topologies, column.cells)
        if step_seconds.get(case.case_id)
    }
    figure, panels = open_panels(len(columns), "step time, ms", "share of steps, %", list(names))
    for axes, (name, column) in zip(panels, columns):
        _draw_panel(axes, topologies, column, step_seconds)
        axes.set_title(name)
    _scale(panels[0], _list_series(columns, step_seconds))
    add_legend(figure, list_handles(panels))
    return figure


def _draw_panel(
    axes: "Axes",
    topologies: Sequence[Topology],
    column: ThroughputColumn,
    step_seconds: Mapping[str, Sequence[float]],
) -> None:
    for index, (topology, case) in enumerate(zip(topologies, column.cells)):
        seconds = step_seconds.get(case.case_id)
        if seconds:
            marks = mark_series(index)
            shares, milliseconds = list_quantiles([1000 * s for s in seconds])
            middle = min(range(len(shares)), key=lambda i: abs(shares[i] - 0.5))
            percents = [100 * share for share in shares]
            axes.plot(milliseconds, percents, markevery=[middle], label=str(topology), **marks)


def list_quantiles(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Shares and the values below or at which they lie, ascending; the smallest and largest too."""
    ordered = sorted(values)
    count = len(ordered)
    if count <= MOST_POINTS:
        places = list(range(count))
    else:
        places = [round(i * (count - 1) / (MOST_POINTS - 1)) for i in range(MOST_POINTS)]
    return [(place + 1) / count for place in places], [ordered[place] for place in places]


def _scale(axes: "Axes", series: Sequence[Sequence[float]]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_ylim(0, 104)
    axes.set_yticks([0, 25, 50, 75, 100])
    first, last = find_range(series)
    if is_wide_range((first, last)):
        axes.set_xscale("log")
        # more would run into each other in a third of the page's width
        subs = (1, 2, 5) if last < MOST_SUBDIVIDED * first else (1,)
        axes.xaxis.set_major_locator(LogLocator(subs=subs))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlim(first / 1.05, last * 1.05)
    else:
        margin = 0.04 * (last - first) or 0.04 * last
        axes.set_xlim(first - margin, last + margin)


def find_range(series: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Milliseconds from the fastest step to where SHOWN_PERCENT of each case's steps end."""
    ends = [sorted(steps)[(SHOWN_PERCENT * len(steps) - 1) // 100] for steps in series]
    return 1000 * min(map(min, series)), 1000 * max(ends)
