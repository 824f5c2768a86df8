"""An overview of a model -> its table with sparklines, its legend and its charts for the page."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.reports.formats.page.charts import Chart, ChartLine, SeriesStyle, Sparkline
from dlperf_slurm.reports.formats.page.tables import HtmlTable, make_html_table
from dlperf_slurm.reports.plots.lines import PlotPoint
from dlperf_slurm.reports.plots.scaling import make_points
from dlperf_slurm.reports.tables import ShownColumn
from dlperf_slurm.reports.tables.overview import (
    Overview,
    OverviewRow,
    has_speedup,
    tabulate_overview,
)
from dlperf_slurm.reports.tables.training import find_efficiencies
from dlperf_slurm.results.number_formats import ScaledFormat

# for each case in order: its point in a chart and its tooltip; None without a figure
Points = Sequence[Optional[tuple[PlotPoint, str]]]


@dataclass(frozen=True)
class LegendEntry:
    """A legend entry that shows or hides the series of one label or one kind.

    `group` is "label" or "kind", `index` its index in the overview.
    """

    group: str
    index: int
    text: str
    look: SeriesStyle


@dataclass(frozen=True)
class OverviewSection:
    """The table of an overview on the page, with a style for each row, its legend and its charts.

    `trends` are the sparklines of the rows, `keys` the legend entries.
    """

    table: HtmlTable
    looks: tuple[SeriesStyle, ...]
    trends: tuple[Optional[Sparkline], ...]
    trend_header: str
    keys: tuple[LegendEntry, ...]
    charts: tuple[Chart, ...]


def make_sections(overviews: Sequence[Overview], footnotes: Sequence[str]) -> list[OverviewSection]:
    """Return the page's section for each overview, in order; `footnotes[n - 1]` is footnote n."""
    return [
        _make_section(overview, f"overview-{number}", footnotes)
        for number, overview in enumerate(overviews, start=1)
    ]


def _make_section(overview: Overview, name: str, footnotes: Sequence[str]) -> OverviewSection:
    """Return the page's section for an overview: its table, sparklines, legend and charts.

    `name` begins the HTML ids of its table; `footnotes[n - 1]` is footnote n.
    """
    looks = tuple(_make_style(overview, row) for row in overview.rows)
    is_share = overview.has_scaling and not overview.is_inference
    trends = _make_trends(overview, looks, is_share)
    table = tabulate_overview(overview)
    lowest = next((trend.lowest for trend in trends if trend is not None), None)
    if is_share and lowest is not None:
        scaling = f"scaling: efficiency at each topology; the axis starts at {100 * lowest:.0f} %"
        table = replace(table, caption=f"{table.caption}; {scaling}")
    return OverviewSection(
        table=make_html_table(table, name, footnotes),
        looks=looks,
        trends=trends,
        trend_header="scaling" if is_share else "throughput",
        keys=tuple(_list_keys(overview)),
        charts=tuple(chart for chart in _list_charts(overview, looks) if chart is not None),
    )


def _name_kind(overview: Overview, precision: str, group: str) -> str:
    """Return the legend text of a kind of series: "amp, batch size 64".

    A kind is a pair (precision, group) of `Overview.kinds`; only what differs between kinds is in
    the text.
    """
    differs = [len({kind[i] for kind in overview.kinds}) > 1 for i in (0, 1)]
    parts = [precision, overview.name_group(group)]
    return ", ".join(part for part, is_told in zip(parts, differs) if is_told)


def _make_style(overview: Overview, row: OverviewRow) -> SeriesStyle:
    """Return colour and dashes for a row, from the indices of its label and kind."""
    label = overview.labels.index(row.label)
    kind = overview.kinds.index((row.precision, row.group))
    return SeriesStyle(label, kind, label if len(overview.labels) > 1 else kind)


def _list_keys(overview: Overview) -> Iterator[LegendEntry]:
    """Yield the legend entries: of labels and of kinds (precision, group), if there are several."""
    if len(overview.labels) > 1:
        for index, label in enumerate(overview.labels):
            yield LegendEntry("label", index, label, SeriesStyle(index, 0, index))
    if len(overview.kinds) > 1:
        for index, (precision, group) in enumerate(overview.kinds):
            hue = None if len(overview.labels) > 1 else index
            yield LegendEntry(
                "kind", index, _name_kind(overview, precision, group), SeriesStyle(0, index, hue)
            )


def _make_trends(
    overview: Overview, looks: Sequence[SeriesStyle], is_share: bool
) -> tuple[Optional[Sparkline], ...]:
    """Return a sparkline for each row, in the styles `looks`; None for a row without values.

    Sparklines show efficiencies if `is_share`, else throughputs.
    """
    shown = overview.measured_places
    figures = overview.read(find_efficiencies(overview.cases)[0] if is_share else "samples_per_s")
    found = [
        [
            (i, value)
            for i in shown
            for case in [row.cases[i]]
            if case is not None and (value := figures[case]) is not None
        ]
        for row in overview.rows
    ]
    values = [value for row in found for _, value in row]
    highest = max(values, default=0.0)
    # rounded down to 10 %, at most 90 %
    lowest = min(0.9, math.floor(10 * min(values, default=0.0)) / 10) if is_share else 0.0
    return tuple(
        Sparkline(
            look,
            tuple(shown.index(i) for i, _ in own),
            tuple(value for _, value in own),
            len(shown),
            lowest,
            max(highest, 1.0) if is_share else highest,
            f"{row.name}: "
            + ", ".join(_describe_value(overview, i, value, is_share) for i, value in own),
            1.0 if is_share else None,
        )
        if own
        else None
        for row, look, own in zip(overview.rows, looks, found)
    )


def _describe_value(overview: Overview, place: int, value: float, is_share: bool) -> str:
    """Format a value with its point on the x axis: "93 % at 2n8g".

    `place` is an index in `Overview.places`; `is_share`: a fraction to print in percent.
    """
    text = f"{100 * value:.0f} %" if is_share else f"{value:.4g} {overview.unit}"
    return f"{text} at {overview.places[place]}"


def _list_charts(overview: Overview, looks: Sequence[SeriesStyle]) -> Iterator[Optional[Chart]]:
    """Yield the charts of throughput, efficiency and precision speedup.

    A chart without cases at two or more topologies (in inference, batch sizes) is None.
    """
    if not overview.has_scaling:
        return
    over = "batch size" if overview.is_inference else "topology"

    # x by topology or batch size
    places = dict(zip(overview.places, _place(overview)))
    cases, by = overview.cases, "batch_size_per_device" if overview.is_inference else "topology"

    def list_points(
        name: str, show: ShownColumn, units: Sequence[str], factor: float = 1.0
    ) -> Points:
        points = make_points(cases, name, places, factor, by)
        shown = zip(cases.index, show.read_cells(cases), units)
        return [
            (points[case_id], f"{cell.text} {unit} {cell.bounds}".strip())
            if case_id in points
            else None
            for case_id, cell, unit in shown
        ]

    bars = "Error bars: 95 % interval; with too few repeats, smallest to largest value."
    throughput = f"Throughput, {overview.unit}, over {over}"
    points = list_points(
        "samples_per_s", ShownColumn("samples_per_s"), [overview.unit] * len(cases)
    )
    yield _make_chart(overview, looks, throughput, bars, points)
    yield from _list_relative(overview, looks, points)
    if not overview.is_inference:
        name = find_efficiencies(cases)[0]
        title = f"{name.partition('_')[0].title()}-scaling efficiency, %"
        text = "100 %: each device is as fast as on the smallest topology."
        units = [f"% of {baseline}'s" for baseline in cases.baseline]
        show = ShownColumn(name, form=ScaledFormat(factor=100))
        points = list_points(name, show, units, 100)
        yield _make_chart(overview, looks, title, text, points, 100.0)
    text = "1: as fast as in the reference precision; above 1: faster."
    units = [f"times {reference}" for reference in cases.reference_precision]
    points = list_points("precision_speedup", ShownColumn("precision_speedup"), units)
    others = [point if is_other else None for point, is_other in zip(points, has_speedup(cases))]
    yield _make_chart(
        overview, looks, "Throughput / throughput in the reference precision", text, others, 1.0
    )


def _list_relative(
    overview: Overview, looks: Sequence[SeriesStyle], points: Points
) -> Iterator[Optional[Chart]]:
    """Yield a bar chart for each kind of series: throughput relative to the fastest framework.

    There is a group of bars for each topology or batch size. `looks` has the style of each row,
    `points` the point of each case in the chart of throughput.
    """
    for kind in overview.kinds:
        rows = [row for row in overview.rows if (row.precision, row.group) == kind]
        if len(rows) < 2:
            continue
        shares: list[Optional[tuple[PlotPoint, str]]] = [None] * len(points)
        for place in range(len(overview.places)):
            own = [p for row in rows if (p := row.cases[place]) is not None]
            found = {p: shown[0].y for p in own if (shown := points[p]) is not None}
            for p, value in found.items() if len(found) > 1 else ():
                share = 100 * value / max(found.values())
                shares[p] = (PlotPoint(float(place), share), f"{share:.1f} % of the fastest series")
        name = _name_kind(overview, *kind)
        title = f"{f'{name}: t' if name else 'T'}hroughput relative to the fastest, %"
        where = "with each batch size" if overview.is_inference else "on each topology"
        text = f"100 %: the fastest series {where}; ratios of medians."
        yield _make_chart(overview, looks, title, text, shares, 100.0, has_bars=True)


def _make_chart(
    overview: Overview,
    looks: Sequence[SeriesStyle],
    title: str,
    caption: str,
    points: Points,
    ideal: Optional[float] = None,
    has_bars: bool = False,
) -> Optional[Chart]:
    """Return a chart with a line (with `has_bars`, bars) per series; None without any points.

    `points` has the point and the tooltip of each case, by position; `looks` the style of each row;
    `ideal` is the value of a reference line.
    """
    lines = []
    for row, look in zip(overview.rows, looks):
        line = _make_line(row, look, overview.places, points)
        if line.points:
            lines.append(line)
    if not lines:
        return None
    shown = {point.x for line in lines for point in line.points}
    places = range(len(overview.places)) if has_bars else _place(overview)
    ticks = tuple((x, name) for x, name in zip(places, overview.places) if x in shown)
    return Chart(title, caption, ticks, tuple(lines), ideal, has_bars)


def _make_line(
    row: OverviewRow, look: SeriesStyle, names: Sequence[str], points: Points
) -> ChartLine:
    """Return the line of a row in a chart; `names` are the labels of the x axis."""
    shown, tips = [], []
    for name, case in zip(names, row.cases):
        found = None if case is None else points[case]
        if found is not None:
            shown.append(found[0])
            tips.append(f"{row.name} at {name}: {found[1]}")
    return ChartLine(row.name, look, tuple(shown), tuple(tips))


def _place(overview: Overview) -> list[float]:
    """Return the x coordinate of each topology or batch size (`Overview.places`) for charts.

    It is log2 of the number of devices or the batch size, or the index of the place if a size is
    unknown or not unique.
    """
    if overview.is_inference:
        sizes = [int(place) if place.isdigit() else 0 for place in overview.places]
    else:
        sizes = [parse_topology(place).world_size for place in overview.places]
    if 0 in sizes or len({*sizes}) < len(sizes):
        return [float(number) for number in range(len(sizes))]
    return [math.log2(size) for size in sizes]
