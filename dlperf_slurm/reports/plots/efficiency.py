"""A table of throughputs -> weak-scaling efficiency over devices, beside 100 %."""

from typing import Optional

from dlperf_slurm.reports.plots import Plot, make_plot
from dlperf_slurm.reports.plots.devices import (
    DEVICES_LABEL,
    describe_ratio_bars,
    describe_repeats,
    has_scaling,
    list_cells,
    make_point,
    make_series,
    make_ticks,
)
from dlperf_slurm.reports.plots.lines import Chart, Point, draw_chart
from dlperf_slurm.reports.tables.throughput import Cell, ThroughputTable


def plot_efficiency(table: ThroughputTable) -> Optional[Plot]:
    """None where no column has two topologies."""
    if not has_scaling(table):
        return None
    intervals = [cell.efficiency_interval for cell in list_cells(table)]
    repeats = describe_repeats(len(cell.samples_per_s) for cell in list_cells(table))
    caption = (
        "Points: speedup over the ideal one, at the same batch size per device; ratios of medians "
        f"over repeats, {repeats}; {describe_ratio_bars(intervals)}."
    )
    return make_plot(
        "efficiency", table.title, "Weak-scaling efficiency", caption,
        lambda: draw_chart(make_chart(table)),
    )  # fmt: skip


def make_chart(table: ThroughputTable) -> Chart:
    ticks = make_ticks(table)
    return Chart(
        series=make_series(table, _find_point),
        x_label=DEVICES_LABEL,
        y_label="efficiency, %",
        ticks=ticks,
        ideal=tuple((x, 100.0) for x, _ in sorted(ticks)),
        ideal_label="ideal",
        is_share=True,
    )


def _find_point(x: float, cell: Cell) -> Optional[Point]:
    if cell.efficiency is None:
        return None
    return make_point(x, cell.efficiency, cell.efficiency_interval, scale=100)
