"""An overview of a model -> its table with small plots, its legend and its charts for the page."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.reports.cells import Cell, Table
from dlperf_slurm.reports.formats.page.charts import Line, LineChart, Look, Trend
from dlperf_slurm.reports.formats.page.tables import HtmlTable, make_html_table
from dlperf_slurm.reports.plots.lines import Point
from dlperf_slurm.reports.plots.scaling import find_bar, make_point, make_ratio_point
from dlperf_slurm.reports.tables import ShownCase, make_throughput_cell
from dlperf_slurm.reports.tables.overview import Overview, OverviewRow, tabulate_overview

# x and the case at it -> the point with what it says; None where there is no figure
FindPoint = Callable[[float, ShownCase], "Optional[tuple[Point, str]]"]


@dataclass(frozen=True)
class Key:
    """What switches the series of one label, or of one kind, on and off."""

    group: str
    index: int
    text: str
    look: Look


@dataclass(frozen=True)
class OverviewSection:
    """A table with a look and a small plot for each row, and charts of its series."""

    table: HtmlTable
    looks: tuple[Look, ...]
    trends: tuple[Optional[Trend], ...]
    trend_header: str
    keys: tuple[Key, ...]
    charts: tuple[LineChart, ...]


def make_sections(overviews: Sequence[Overview], footnotes: Sequence[str]) -> list[OverviewSection]:
    return [
        _make_section(overview, f"overview-{number}", footnotes)
        for number, overview in enumerate(overviews, start=1)
    ]


def _make_section(overview: Overview, name: str, footnotes: Sequence[str]) -> OverviewSection:
    looks = tuple(_make_look(overview, row) for row in overview.rows)
    is_share = overview.has_scaling and not overview.is_inference
    trends = _make_trends(overview, looks, is_share)
    return OverviewSection(
        table=make_html_table(_explain_trends(overview, trends, is_share), name, footnotes),
        looks=looks,
        trends=trends,
        trend_header="scaling" if is_share else "throughput",
        keys=tuple(_list_keys(overview)),
        charts=tuple(chart for chart in _list_charts(overview, looks) if chart is not None),
    )


def _name_kind(overview: Overview, precision: str, group: str) -> str:
    """The precision, the group, or both: what differs between kinds."""
    differs = [len({kind[i] for kind in overview.kinds}) > 1 for i in (0, 1)]
    parts = [precision, overview.name_group(group)]
    return ", ".join(part for part, is_told in zip(parts, differs) if is_told)


def _explain_trends(overview: Overview, trends: Sequence[Optional[Trend]], is_share: bool) -> Table:
    """The table whose caption says what its small plots are."""
    table = tabulate_overview(overview)
    lowest = next((trend.lowest for trend in trends if trend is not None), None)
    if not is_share or lowest is None:
        return table
    scaling = f"scaling: the efficiency at each topology, from {100 * lowest:.0f} % up"
    return replace(table, caption=f"{table.caption}; {scaling}")


def _make_look(overview: Overview, row: OverviewRow) -> Look:
    label = overview.labels.index(row.label)
    kind = overview.kinds.index((row.precision, row.group))
    return Look(label, kind, label if len(overview.labels) > 1 else kind)


def _list_keys(overview: Overview) -> Iterator[Key]:
    """None for what all series share."""
    if len(overview.labels) > 1:
        for index, label in enumerate(overview.labels):
            yield Key("label", index, label, Look(index, 0, index))
    if len(overview.kinds) > 1:
        for index, (precision, group) in enumerate(overview.kinds):
            hue = None if len(overview.labels) > 1 else index
            yield Key("kind", index, _name_kind(overview, precision, group), Look(0, index, hue))


def _make_trends(
    overview: Overview, looks: Sequence[Look], is_share: bool
) -> tuple[Optional[Trend], ...]:
    """A trend for each row: efficiency over topologies, else throughput; None without figures."""
    shown = overview.measured_places
    found = [
        [(i, value) for i in shown if (value := _read(row.cells[i], is_share)) is not None]
        for row in overview.rows
    ]
    values = [value for row in found for _, value in row]
    highest = max(values, default=0.0)
    lowest = _find_lowest(values) if is_share else 0.0
    return tuple(
        Trend(
            look,
            tuple(shown.index(i) for i, _ in own),
            tuple(value for _, value in own),
            len(shown),
            lowest,
            max(highest, 1.0) if is_share else highest,
            f"{row.name}: " + ", ".join(_tell(overview, i, value, is_share) for i, value in own),
            1.0 if is_share else None,
        )
        if own
        else None
        for row, look, own in zip(overview.rows, looks, found)
    )


def _find_lowest(shares: Sequence[float]) -> float:
    """The bottom of the small plots: the tenth below the least efficiency, 90 % at most."""
    return min(0.9, math.floor(10 * min(shares, default=0.0)) / 10)


def _read(case: ShownCase, is_share: bool) -> Optional[float]:
    return case.weak_scaling_efficiency.value if is_share else case.samples_per_s


def _tell(overview: Overview, place: int, value: float, is_share: bool) -> str:
    text = f"{100 * value:.0f} %" if is_share else f"{value:.4g} {overview.unit}"
    return f"{text} at {overview.places[place]}"


def _list_charts(overview: Overview, looks: Sequence[Look]) -> Iterator[Optional[LineChart]]:
    """Over at least two places: throughput, efficiency, and what precisions bring."""
    if not overview.has_scaling:
        return
    over = "batch size" if overview.is_inference else "topology"

    def find_throughput(x: float, case: ShownCase) -> Optional[tuple[Point, str]]:
        point = make_point(x, case.samples_per_s, find_bar(case.interval, case.samples))
        return None if point is None else (point, _write(make_throughput_cell(case), overview.unit))

    def find_efficiency(x: float, case: ShownCase) -> Optional[tuple[Point, str]]:
        ratio = case.weak_scaling_efficiency.scale(100)
        point = make_ratio_point(x, ratio)
        if point is None:
            return None
        bounds = ratio.interval
        return point, _write(Cell(ratio.value, interval=bounds), f"% of {case.baseline}'s")

    def find_speedup(x: float, case: ShownCase) -> Optional[tuple[Point, str]]:
        ratio = case.precision_speedup
        point = None if ratio.is_of_itself else make_ratio_point(x, ratio)
        if point is None:
            return None
        cell = Cell(ratio.value, interval=ratio.interval)
        return point, _write(cell, f"times {case.reference_precision}")

    bars = "Bars: 95 % intervals, or the range of too few repeats."
    throughput = f"Throughput, {overview.unit}, over {over}"
    yield _make_chart(overview, looks, throughput, bars, find_throughput)
    if not overview.is_inference:
        title = "Weak-scaling efficiency, %"
        text = "100 %: each device as fast as those of the smallest topology."
        yield _make_chart(overview, looks, title, text, find_efficiency, 100.0)
    text = "1: as fast as the reference precision; above it, faster."
    yield _make_chart(overview, looks, "Times the reference precision", text, find_speedup, 1.0)


def _make_chart(
    overview: Overview,
    looks: Sequence[Look],
    title: str,
    caption: str,
    find_point: FindPoint,
    ideal: Optional[float] = None,
) -> Optional[LineChart]:
    """The chart of all series with a point; None where there is none."""
    places = _place(overview)
    lines = []
    for row, look in zip(overview.rows, looks):
        line = _make_line(row, look, places, overview.places, find_point)
        if line.points:
            lines.append(line)
    if not lines:
        return None
    shown = {point.x for line in lines for point in line.points}
    ticks = tuple((x, name) for x, name in zip(places, overview.places) if x in shown)
    return LineChart(title, caption, ticks, tuple(lines), ideal)


def _make_line(
    row: OverviewRow,
    look: Look,
    places: Sequence[float],
    names: Sequence[str],
    find_point: FindPoint,
) -> Line:
    points, tips = [], []
    for x, name, case in zip(places, names, row.cells):
        found = find_point(x, case)
        if found is not None:
            points.append(found[0])
            tips.append(f"{row.name} at {name}: {found[1]}")
    return Line(row.name, look, tuple(points), tuple(tips))


def _place(overview: Overview) -> list[float]:
    """x of each place: by its devices or batch size in powers of two, or by its number."""
    sizes = [
        0 if overview.is_inference and not place.isdigit() else _find_size(overview, place)
        for place in overview.places
    ]
    if 0 in sizes or len({*sizes}) < len(sizes):
        return [float(number) for number in range(len(sizes))]
    return [math.log2(size) for size in sizes]


def _find_size(overview: Overview, place: str) -> int:
    return int(place) if overview.is_inference else parse_topology(place).world_size


def _write(cell: Cell, unit: str) -> str:
    """A figure with its unit and bounds."""
    return f"{cell.text} {unit} {cell.bounds}".strip()
