"""A table of throughputs -> speedup over the smallest topology, beside the ideal line."""

from typing import Optional

from dlperf_slurm.contract.topology import Topology
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
    place_topologies,
)
from dlperf_slurm.reports.plots.lines import Chart, Point, draw_chart
from dlperf_slurm.reports.tables.throughput import Cell, ThroughputTable


def plot_speedup(table: ThroughputTable) -> Optional[Plot]:
    """None where no column has two topologies."""
    if not has_scaling(table):
        return None
    baselines = _list_baselines(table)
    against = baselines[0] if len(baselines) == 1 else "each one's smallest topology"
    intervals = [cell.speedup_interval for cell in list_cells(table)]
    repeats = describe_repeats(len(cell.samples_per_s) for cell in list_cells(table))
    caption = (
        f"Points: ratio of medians over repeats, {repeats}, against {against}; "
        f"{describe_ratio_bars(intervals)}."
    )
    return make_plot(
        "speedup", table.title, "Speedup over devices", caption,
        lambda: draw_chart(make_chart(table)),
    )  # fmt: skip


def make_chart(table: ThroughputTable) -> Chart:
    return Chart(
        series=make_series(table, _find_point),
        x_label=DEVICES_LABEL,
        y_label="speedup",
        ticks=make_ticks(table),
        ideal=_list_ideal(table),
        ideal_label="ideal",
    )


def _find_point(x: float, cell: Cell) -> Optional[Point]:
    return None if cell.speedup is None else make_point(x, cell.speedup, cell.speedup_interval)


def _list_baselines(table: ThroughputTable) -> list[Topology]:
    return sorted({c.baseline for c in table.columns if c.baseline is not None})


def _list_ideal(table: ThroughputTable) -> tuple[tuple[float, float], ...]:
    """As many times as fast as there are more devices; none where the baselines differ."""
    baselines = _list_baselines(table)
    if len(baselines) > 1:
        return ()
    places = place_topologies(table)
    base = baselines[0].world_size
    ordered = sorted(places.items(), key=lambda item: item[1])
    return tuple((x, topology.world_size / base) for topology, x in ordered)
