"""A table of throughputs -> throughput, speedup and efficiency over the number of devices."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Optional, Union

from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.reports.plots import Plot, make_plot
from dlperf_slurm.reports.plots.lines import Chart, Point, Series, draw_chart
from dlperf_slurm.reports.plots.style import INK, MUTED, WIDTH_INCHES, mark_series, open_figure
from dlperf_slurm.reports.tables.latency import LatencyRow
from dlperf_slurm.reports.tables.throughput import Cell, Column, ThroughputTable
from dlperf_slurm.results.cases import VARIANT_AXES
from dlperf_slurm.stats.median import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_throughput(table: ThroughputTable) -> Optional[Plot]:
    """None where nothing was measured."""
    topologies = list(place_topologies(table))
    if not topologies:
        return None
    if len(topologies) == 1:
        title = f"Throughput on {topologies[0]}, {table.unit}"
        caption = f"{describe_medians(table)} Small dots: the repeats."
        draw = lambda: _draw_dots(table)  # noqa: E731
    else:
        title = f"Throughput over devices, {table.unit}"
        caption = describe_medians(table)
        draw = lambda: draw_chart(make_throughput_chart(table))  # noqa: E731
    return make_plot("throughput", table.title, title, caption, draw)


def make_throughput_chart(table: ThroughputTable) -> Chart:
    return _make_chart(table, f"throughput, {table.unit}", _find_throughput)


def _find_throughput(x: float, cell: Cell) -> Optional[Point]:
    if cell.median is None:
        return None
    return make_point(x, cell.median, find_bar(cell.interval, cell.samples_per_s))


def _draw_dots(table: ThroughputTable) -> "Figure":
    """A row for each framework, in the table's order from the top."""
    names = [name for name, _ in list_columns(table)]
    figure = open_figure(WIDTH_INCHES, 0.9 + 0.34 * len(names))
    axes = figure.add_subplot()
    for row, cell in enumerate(list_cells(table)):
        marks = mark_series(row)
        axes.plot(cell.samples_per_s, [row] * len(cell.samples_per_s), ".", color=MUTED)
        point = _find_throughput(0.0, cell)
        if point is not None and point.low is not None and point.high is not None:
            axes.plot([point.low, point.high], [row, row], color=marks["color"], linewidth=1.6)
        axes.plot([cell.median], [row], marker=marks["marker"], color=marks["color"])
        axes.annotate(
            f"{cell.median:.4g}", (cell.median or 0, row), (0, 6), textcoords="offset points",
            ha="center", fontsize=8, color=INK,
        )  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.7)
    axes.set_xlim(left=0)
    axes.grid(axis="x")
    axes.set_xlabel(f"throughput, {table.unit}")
    return figure


def plot_speedup(table: ThroughputTable) -> Optional[Plot]:
    """None where no column has two topologies."""
    if not has_scaling(table):
        return None
    baselines = _list_baselines(table)
    against = baselines[0] if len(baselines) == 1 else "each one's smallest topology"
    cells = list_cells(table)
    caption = (
        f"Points: ratio of medians over repeats, {count_repeats(cells)}, against {against}; "
        f"{describe_ratio_bars(c.speedup_interval for c in cells)}."
    )
    return make_plot(
        "speedup", table.title, "Speedup over devices", caption,
        lambda: draw_chart(make_speedup_chart(table)),
    )  # fmt: skip


def make_speedup_chart(table: ThroughputTable) -> Chart:
    return _make_chart(table, "speedup", _find_speedup, _list_ideal(table))


def _find_speedup(x: float, cell: Cell) -> Optional[Point]:
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


def plot_efficiency(table: ThroughputTable) -> Optional[Plot]:
    """None where no column has two topologies."""
    if not has_scaling(table):
        return None
    cells = list_cells(table)
    bars = describe_ratio_bars(cell.efficiency_interval for cell in cells)
    caption = (
        "Points: speedup over the ideal one, at the same batch size per device; ratios of medians "
        f"over repeats, {count_repeats(cells)}; {bars}."
    )
    return make_plot(
        "efficiency", table.title, "Weak-scaling efficiency", caption,
        lambda: draw_chart(make_efficiency_chart(table)),
    )  # fmt: skip


def make_efficiency_chart(table: ThroughputTable) -> Chart:
    ideal = tuple((x, 100.0) for x in sorted(place_topologies(table).values()))
    return _make_chart(table, "efficiency, %", _find_efficiency, ideal, is_share=True)


def _find_efficiency(x: float, cell: Cell) -> Optional[Point]:
    if cell.efficiency is None:
        return None
    return make_point(x, cell.efficiency, cell.efficiency_interval, scale=100)


def _make_chart(
    table: ThroughputTable,
    y_label: str,
    find_point: Callable[[float, Cell], Optional[Point]],
    ideal: tuple[tuple[float, float], ...] = (),
    is_share: bool = False,
) -> Chart:
    places = place_topologies(table)
    return Chart(
        series=make_series(table, find_point),
        x_label="devices, with their topology",
        y_label=y_label,
        ticks=tuple((x, f"{t.world_size}\n{t}") for t, x in places.items()),
        ideal=ideal,
        ideal_label="ideal" if ideal else "",
        is_share=is_share,
    )


def list_columns(table: ThroughputTable) -> list[tuple[str, Column]]:
    """Those that have a figure, with the name they have in a legend."""
    return [
        (name_column(table, column), column)
        for column in table.columns
        if column.baseline is not None
    ]


def name_column(table: ThroughputTable, column: Column) -> str:
    has_name = table.has_compilers and column.compiler != VARIANT_AXES["compiler"]
    return f"{column.label}, {column.compiler}" if has_name else column.label


def place_topologies(table: ThroughputTable) -> dict[Topology, float]:
    """x of each topology that was measured: its devices, or its place where two have as many."""
    measured = [
        topology
        for row, topology in enumerate(table.topologies)
        if any(column.cells[row].median is not None for column in table.columns)
    ]
    sizes = [topology.world_size for topology in measured]
    if len(set(sizes)) == len(sizes):
        return {topology: float(topology.world_size) for topology in measured}
    ordered = sorted(measured, key=lambda topology: (topology.world_size, topology))
    return {topology: float(place) for place, topology in enumerate(ordered, start=1)}


def make_series(
    table: ThroughputTable, find_point: Callable[[float, Cell], Optional[Point]]
) -> tuple[Series, ...]:
    """One series per column; `find_point` takes x and a cell that was measured."""
    places = place_topologies(table)
    found = []
    for name, column in list_columns(table):
        cells = zip(table.topologies, column.cells)
        points = [find_point(places[t], cell) for t, cell in cells if cell.median is not None]
        kept = sorted((p for p in points if p is not None), key=lambda point: point.x)
        found.append(Series(name, tuple(kept)))
    return tuple(found)


def find_bar(interval: Optional[Interval], samples: Iterable[float]) -> Optional[Interval]:
    """The interval; without one the range of the repeats, if there are two."""
    values = list(samples)
    if interval is not None or len(values) < 2:
        return interval
    return Interval(min(values), max(values))


def has_scaling(table: ThroughputTable) -> bool:
    """Whether a column was measured on two topologies at least."""
    return any(sum(c.median is not None for c in column.cells) > 1 for column in table.columns)


def make_point(x: float, y: float, bar: Optional[Interval], scale: float = 1.0) -> Point:
    """A point with its bar, if it has one, both in the unit of the figure."""
    if bar is None:
        return Point(x, scale * y)
    return Point(x, scale * y, scale * bar.low, scale * bar.high)


def list_cells(table: ThroughputTable) -> list[Cell]:
    """Those that were measured."""
    return [c for column in table.columns for c in column.cells if c.median is not None]


def count_repeats(cells: Sequence[Union[Cell, LatencyRow]]) -> str:
    """Such as "n = 6 repeats", "n = 2 to 6 repeats"."""
    numbers = sorted({len(cell.samples_per_s) for cell in cells})
    if numbers == [1]:
        return "n = 1 repeat"
    text = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
    return f"n = {text} repeats"


def describe_medians(table: ThroughputTable) -> str:
    """What a point and its bar are, with the number of repeats."""
    cells = list_cells(table)
    return f"Points: median over repeats, {count_repeats(cells)}; {describe_bars(cells)}."


def describe_bars(cells: Sequence[Union[Cell, LatencyRow]]) -> str:
    """Of medians over repeats."""
    with_interval = [cell.interval is not None for cell in cells]
    with_range = [cell.interval is None and len(cell.samples_per_s) > 1 for cell in cells]
    if any(with_interval) and any(with_range):
        return "bars: the 95 % interval of the median, or the range of too few repeats"
    if any(with_interval):
        return "bars: the 95 % interval of the median"
    if any(with_range):
        return "bars: from the smallest to the largest repeat"
    return "one repeat has no bar"


def describe_ratio_bars(intervals: Iterable[Optional[Interval]]) -> str:
    """What the bars of speedups and efficiencies are; the baseline itself never has one."""
    if any(interval is not None for interval in intervals):
        return "bars: the 95 % interval of the ratio, where there are repeats enough for one"
    return "too few repeats for bars"
