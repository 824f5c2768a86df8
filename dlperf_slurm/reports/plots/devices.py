"""A table of throughputs -> series over the number of devices, and words for their bars."""

from collections.abc import Callable, Iterable, Sequence
from typing import Optional, Union

from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.reports.plots.lines import Point, Series
from dlperf_slurm.reports.tables.latency import LatencyRow
from dlperf_slurm.reports.tables.throughput import Cell, Column, ThroughputTable
from dlperf_slurm.results.cases import VARIANT_AXES
from dlperf_slurm.stats.median import Interval

DEVICES_LABEL = "devices, with their topology"


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


def make_ticks(table: ThroughputTable) -> tuple[tuple[float, str], ...]:
    return tuple((x, f"{t.world_size}\n{t}") for t, x in place_topologies(table).items())


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


def describe_repeats(counts: Iterable[int]) -> str:
    """Such as "n = 6 repeats", "n = 2 to 6 repeats"."""
    numbers = sorted(set(counts))
    if numbers == [1]:
        return "n = 1 repeat"
    text = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
    return f"n = {text} repeats"


def describe_medians(table: ThroughputTable) -> str:
    """What a point and its bar are, with the number of repeats."""
    cells = list_cells(table)
    repeats = describe_repeats(len(cell.samples_per_s) for cell in cells)
    return f"Points: median over repeats, {repeats}; {describe_bars(cells)}."


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
