"""The cases of a latency table -> a figure of percentiles over batch size, by precision."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.reports.plots import Plot, make_plot
from dlperf_slurm.reports.plots.lines import (
    PlotChart,
    PlotSeries,
    draw_series,
    open_panels,
    set_scales,
)
from dlperf_slurm.reports.plots.scaling import count_repeats, describe_bars, make_points
from dlperf_slurm.reports.plots.style import add_legend, list_handles

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

# the five percentiles of the tables would be too close to each other
SHOWN_PERCENTILES = {50: "median", 90: "90 %", 99: "99 %", 100: "slowest"}


def plot_latency(title: str, rows: "DataFrame") -> Optional[Plot]:
    """Plot percentiles of latency over batch size; None for fewer than two batch sizes.

    `title` and `rows` (cases) are those of a latency table.
    """
    cases = rows[rows.latency_avg_ms.notna()]
    # text -> x, the smallest batch size if the text has several: {"16 32": 16.0}
    sizes = {text: float(text.split()[0]) for text in cases.batch_sizes_measured}
    if len(set(sizes.values())) < 2:
        return None
    caption = (
        "Each repeat has a median, a 90th and 99th percentile and a maximum of the latency of all "
        f"ranks' batches. Points: medians of these over the repeats ({count_repeats(cases)}); "
        f"{describe_bars(cases)}."
    )
    return make_plot("latency", title, "Latency of a batch", caption, lambda: _draw(cases, sizes))


def _draw(cases: "DataFrame", sizes: Mapping[str, float]) -> "Figure":
    """Draw a panel for each precision, with a line per percentile; `sizes` has x by text."""
    precisions = list(cases.precision.unique())
    chart = make_chart(cases, precisions, sizes)
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


def make_chart(
    cases: "DataFrame", precisions: Sequence[str], sizes: Mapping[str, float]
) -> PlotChart:
    """Make a chart with a series for each precision and percentile, in this order.

    `sizes` has x, the batch size, by text of `batch_sizes_measured`.
    """
    series = []
    for precision in precisions:
        own = cases[cases.precision == precision]
        for percent, label in SHOWN_PERCENTILES.items():
            name = f"latency_p{percent}_ms"
            points = make_points(own, name, sizes, by="batch_sizes_measured")
            series.append(PlotSeries(label, tuple(points.values())))
    return PlotChart(
        series=tuple(series),
        x_label="batch size per device",
        y_label="latency of a batch, ms (lower: faster)",
        ticks=tuple((size, f"{size:g}") for size in sorted(set(sizes.values()))),
    )
