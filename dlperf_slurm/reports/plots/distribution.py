"""Step times of a table's cases -> cumulative distributions, a panel per series."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.reports.plots import Plot, make_plot
from dlperf_slurm.reports.plots.lines import is_wide_range, open_panels
from dlperf_slurm.reports.plots.scaling import list_measured, list_series
from dlperf_slurm.reports.plots.style import add_legend, list_handles, mark_series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

# points per distribution: more would not be visible
MOST_POINTS = 200
# slower steps are cut off, as they would compress the rest; tables report stalls
SHOWN_PERCENT = 99
# logarithmic axes up to this ratio of their ends have ticks at 1, 2, 5, 10, ..., wider ones at
# powers of ten
MOST_SUBDIVIDED = 30


def plot_distribution(
    title: str, rows: "DataFrame", step_seconds: Mapping[str, Sequence[float]]
) -> Optional[Plot]:
    """Plot the cumulative distribution of each case's step times; None if no case has any.

    `title` and `rows` are those of a throughput table. `step_seconds` has the slowest rank's step
    times of all repeats, by case id.
    """
    measured = list_measured(rows)
    timed = measured[[bool(step_seconds.get(case_id)) for case_id in measured.index]]
    if timed.empty:
        return None
    series = [step_seconds[case_id] for case_id in timed.index]
    counts = sorted(set(map(len, series)))
    steps = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    caption = (
        f"Lines: share of a case's measured steps that took at most this time; {steps} steps "
        "each, over all repeats, with the time of the slowest rank. Marks: median step. The axis "
        f"ends where {SHOWN_PERCENT} % of each case's steps do."
    )
    # each topology has the same colour in all panels
    topologies = [str(topology) for topology in sorted(map(parse_topology, set(rows.topology)))]
    return make_plot(
        "step-times", title, "Distribution of step times", caption,
        lambda: _draw(timed, topologies, step_seconds),
    )  # fmt: skip


def _draw(
    timed: "DataFrame", topologies: Sequence[str], step_seconds: Mapping[str, Sequence[float]]
) -> "Figure":
    """Draw a panel for each series (framework and variant), with a line per topology.

    `topologies` has those of all panels, for their colours.
    """
    names = dict.fromkeys(timed.topology)
    count = timed.column.nunique()
    figure, panels = open_panels(
        count, "step time, ms (left: faster)", "share of steps, %", list(names)
    )
    groups = timed.groupby("column", sort=False)
    for axes, name, (_, cases) in zip(panels, list_series(timed), groups):
        for topology, case_id in zip(cases.topology, cases.index):
            _draw_case(axes, topology, topologies.index(topology), step_seconds[case_id])
        axes.set_title(name)
    _scale(panels[0], [step_seconds[case_id] for case_id in timed.index])
    add_legend(figure, list_handles(panels))
    return figure


def _draw_case(axes: "Axes", topology: str, index: int, seconds: Sequence[float]) -> None:
    """Draw the distribution of a case; `index` chooses colour and line style."""
    shares, milliseconds = list_quantiles([1000 * s for s in seconds])
    middle = min(range(len(shares)), key=lambda i: abs(shares[i] - 0.5))
    percents = [100 * share for share in shares]
    axes.plot(milliseconds, percents, markevery=[middle], label=topology, **mark_series(index))


def list_quantiles(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return cumulative shares (0 to 1) and the ascending values at them, at most MOST_POINTS.

    The smallest and the largest value are always included.
    """
    ordered = sorted(values)
    count = len(ordered)
    if count <= MOST_POINTS:
        places = list(range(count))
    else:
        places = [round(i * (count - 1) / (MOST_POINTS - 1)) for i in range(MOST_POINTS)]
    return [(place + 1) / count for place in places], [ordered[place] for place in places]


def _scale(axes: "Axes", series: Sequence[Sequence[float]]) -> None:
    """Set the range, scale and ticks of the axes, which all panels share."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_ylim(0, 104)
    axes.set_yticks([0, 25, 50, 75, 100])
    first, last = find_range(series)
    if is_wide_range((first, last)):
        axes.set_xscale("log")
        # more tick labels would overlap in a panel of a third of the width
        subs = (1, 2, 5) if last < MOST_SUBDIVIDED * first else (1,)
        axes.xaxis.set_major_locator(LogLocator(subs=subs))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlim(first / 1.05, last * 1.05)
    else:
        margin = 0.04 * (last - first) or 0.04 * last
        axes.set_xlim(first - margin, last + margin)


def find_range(series: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the range of the time axis in ms.

    From the fastest step to the time that SHOWN_PERCENT of each case's steps do not exceed.
    """
    ends = [sorted(steps)[(SHOWN_PERCENT * len(steps) - 1) // 100] for steps in series]
    return 1000 * min(map(min, series)), 1000 * max(ends)
