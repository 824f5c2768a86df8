"""Step times of a table's cases -> cumulative distributions, a panel per series."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.reports.plots import Plot, is_drawn_for_page, make_plot
from dlperf_slurm.reports.plots.lines import is_wide_range, open_panels, set_log_scale
from dlperf_slurm.reports.plots.scaling import list_measured, list_series
from dlperf_slurm.reports.plots.style import add_legend, mark_series

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

    `title` and `rows` (cases) are those of a throughput table. `step_seconds` has the slowest
    rank's step times of all repeats, by case id.
    """
    measured = list_measured(rows)
    timed = measured[[bool(step_seconds.get(case_id)) for case_id in measured.index]]
    if timed.empty:
        return None
    series = [step_seconds[case_id] for case_id in timed.index]
    counts = sorted(set(map(len, series)))
    steps = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    caption = (
        "Lines: share of a case's measured steps that took at most the time on the x-axis; "
        f"{steps} steps per case, from all repeats, each with the time of the slowest rank. Marks: "
        f"median step. The axis ends where every line has reached {SHOWN_PERCENT} %."
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

    `timed` has the cases that have step times; `topologies` are those of all panels, whose indices
    choose colours; `step_seconds` has the times by case id. For the page, the next call may draw on
    the returned figure again.
    """
    shown = tuple((name, topologies.index(name)) for name in dict.fromkeys(timed.topology))
    first, last = find_range([step_seconds[case_id] for case_id in timed.index])
    # more tick labels would overlap in a panel of a third of the width
    marks = (
        ((1, 2, 5) if last < MOST_SUBDIVIDED * first else (1,))
        if is_wide_range((first, last))
        else ()
    )
    # a figure for a file gets a heading, so it cannot be reused for the next plot
    open_empty = _open_kept if is_drawn_for_page() else _open
    figure, panels = open_empty(timed.column.nunique(), shown, marks)
    groups = timed.groupby("column", sort=False)
    for axes, name, (_, cases) in zip(panels, list_series(timed), groups):
        for line in [*axes.lines]:
            line.remove()
        for topology, case_id in zip(cases.topology, cases.index):
            _draw_case(axes, topologies.index(topology), step_seconds[case_id])
        axes.set_title(name)
    margin = 0.04 * (last - first) or 0.04 * last
    ends = (first / 1.05, last * 1.05) if marks else (first - margin, last + margin)
    panels[0].set_xlim(*ends)
    return figure


def _open(
    count: int, shown: Sequence[tuple[str, int]], marks: Sequence[int]
) -> "tuple[Figure, list[Axes]]":
    """Open a figure with `count` empty panels that share both axes: step time in ms, and share.

    `shown` has the topologies of its legend, with the indices of their colours, and `marks` the
    digits at which a logarithmic time axis has ticks; it is linear without them.
    """
    from matplotlib.lines import Line2D

    figure, panels = open_panels(
        *(count, "step time, ms (left: faster)", "share of steps, %"), [name for name, _ in shown]
    )
    axes = panels[0]
    axes.set_ylim(0, 104)
    axes.set_yticks([0, 25, 50, 75, 100])
    if marks:
        set_log_scale(axes, "x", marks)
    add_legend(figure, {name: Line2D([], [], **mark_series(index)) for name, index in shown})
    return figure, panels


# most figures of a page differ in their lines alone, and opening one takes longer than its lines
_open_kept = lru_cache(maxsize=1)(_open)


def _draw_case(axes: "Axes", index: int, seconds: Sequence[float]) -> None:
    """Draw the cumulative distribution of step times; `index` chooses colour and line style."""
    shares, milliseconds = list_quantiles([1000 * s for s in seconds])
    middle = min(range(len(shares)), key=lambda i: abs(shares[i] - 0.5))
    percents = [100 * share for share in shares]
    axes.plot(milliseconds, percents, markevery=[middle], **mark_series(index))


def list_quantiles(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return cumulative shares (0 to 1), and the values up to which each share of values lies.

    There are at most MOST_POINTS of each, ascending, with the smallest and the largest value.
    """
    ordered = sorted(values)
    count = len(ordered)
    if count <= MOST_POINTS:
        places = list(range(count))
    else:
        places = [round(i * (count - 1) / (MOST_POINTS - 1)) for i in range(MOST_POINTS)]
    return [(place + 1) / count for place in places], [ordered[place] for place in places]


def find_range(series: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the ends of the time axis in ms, for lists of step times in seconds.

    From the fastest step to a time that SHOWN_PERCENT of each case's steps do not exceed.
    """
    ends = [sorted(steps)[(SHOWN_PERCENT * len(steps) - 1) // 100] for steps in series]
    return 1000 * min(map(min, series)), 1000 * max(ends)
