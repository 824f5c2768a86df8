"""Comparison of two runs -> a figure with the ratio of each case and its interval."""

from typing import TYPE_CHECKING

from dlperf_slurm.reports.plots import Plot, make_plot
from dlperf_slurm.reports.plots.style import MUTED, SERIES_COLORS, WIDE_INCHES, open_figure
from dlperf_slurm.results.compare import (
    FASTER,
    MEAN_LATENCY,
    NO_DIFFERENCE,
    SLOWER,
    Comparison,
    RunComparison,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NEUTRAL_COLOR, _SLOWER_COLOR, _FASTER_COLOR = SERIES_COLORS[:3]
# a verdict, its marker and its colour: also told apart in grey
_MARKS = {
    SLOWER: ("<", _SLOWER_COLOR),
    FASTER: (">", _FASTER_COLOR),
    NO_DIFFERENCE: ("o", _NEUTRAL_COLOR),
}
_UNDECIDED_MARK = ("x", MUTED)


def plot_comparison(compared: RunComparison) -> Plot:
    """One line per case and quantity of which there is a ratio, the first one on top."""
    shown = [c for c in compared.comparisons if c.speed_ratio is not None]
    limit = "" if compared.limit is None else "; dashed: the slowdown that is allowed"
    return make_plot(
        "comparison",
        "",
        f"Speed of {compared.manifest_b.run_id} over {compared.manifest_a.run_id}",
        "ratio of medians over repeats with its own 95 % interval, where there are repeats enough; "
        "triangles: faster or slower beyond chance, for all cases together; circles: no "
        f"difference; crosses: undecided{limit}",
        lambda: _draw(compared, shown),
    )


def _draw(compared: RunComparison, shown: "list[Comparison]") -> "Figure":
    figure = open_figure(WIDE_INCHES, 1.0 + 0.3 * max(1, len(shown)))
    axes = figure.add_subplot()
    axes.axvline(1.0, color=MUTED, linewidth=1)
    if compared.limit is not None:
        axes.axvline(1.0 - compared.limit, color=MUTED, linewidth=1, linestyle=(0, (5, 2)))
    for row, comparison in enumerate(shown):
        ratio = comparison.speed_ratio or 0.0
        marker, color = _MARKS.get(comparison.verdict, _UNDECIDED_MARK)
        axes.plot([ratio], [row], marker=marker, color=color)
        if comparison.interval is not None:
            low, high = comparison.interval.low, comparison.interval.high
            # by its own ends: a ratio of medians need not lie between them
            middle, half = (low + high) / 2, (high - low) / 2
            axes.errorbar([middle], [row], xerr=[half], fmt="none", color=color, capsize=3)
    axes.set_yticks(range(len(shown)), [_name(comparison) for comparison in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("speed of B over A")
    return figure


def _name(comparison: Comparison) -> str:
    suffix = ", latency" if comparison.quantity == MEAN_LATENCY else ""
    return f"{comparison.case_id}{suffix}"
