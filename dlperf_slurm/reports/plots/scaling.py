"""The cases of a throughput table -> figures of throughput, speedup and efficiency.

A series has the cases of one framework and variant, over their topologies. The parameters `title`
and `rows` are the title and the cases of a table, from `list_groups`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.topology import Topology, parse_topology
from dlperf_slurm.reports.plots import Plot, make_plot
from dlperf_slurm.reports.plots.lines import PlotChart, PlotPoint, PlotSeries, draw_chart
from dlperf_slurm.reports.plots.style import INK, MUTED, WIDTH_INCHES, mark_series, open_figure
from dlperf_slurm.reports.tables import COLUMNS, ShownColumn, read_intervals
from dlperf_slurm.reports.tables.training import find_efficiencies
from dlperf_slurm.results.columns import list_values
from dlperf_slurm.results.labels import VARIANT_AXES

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

# the throughputs of the repeats by case id
Repeats = Mapping[str, Sequence[float]]


def plot_throughput(title: str, rows: "DataFrame", repeats: Repeats) -> Optional[Plot]:
    """Plot throughput over topologies, or single repeats if there is only one topology.

    `rows` are a table's cases, `repeats` throughputs by case id. None without measured cases.
    """
    topologies, measured = list(place_topologies(rows)), list_measured(rows)
    if not topologies:
        return None
    caption = f"Points: median over repeats, {count_repeats(measured)}; {describe_bars(measured)}."
    unit = rows.unit.iloc[0]
    if len(topologies) == 1:
        caption += " Small dots: single repeats."
        return make_plot(
            "throughput", title, f"Throughput on {topologies[0]}, {unit}", caption,
            lambda: _draw_dots(measured, repeats),
        )  # fmt: skip
    chart = make_throughput_chart(rows)
    heading = f"Throughput by number of devices, {unit}"
    return make_plot("throughput", title, heading, caption, lambda: draw_chart(chart))


def make_throughput_chart(rows: "DataFrame") -> PlotChart:
    """Make the chart of throughput over device counts, with a line per framework and variant."""
    return _make_chart(rows, "samples_per_s", f"throughput, {rows.unit.iloc[0]} (higher: faster)")


def _draw_dots(measured: "DataFrame", repeats: Repeats) -> "Figure":
    """Draw the repeats of each series as dots in a row, in the order of the table from the top."""
    names = list_series(measured)
    figure = open_figure(WIDTH_INCHES, 0.9 + 0.34 * len(names))
    axes = figure.add_subplot()
    zeros = dict.fromkeys(measured.topology, 0.0)
    points = make_points(measured, "samples_per_s", zeros)
    texts = [cell.text for cell in ShownColumn("samples_per_s").read_cells(measured)]
    for row, (case_id, text) in enumerate(zip(measured.index, texts)):
        marks, point, samples = mark_series(row), points[case_id], repeats[case_id]
        axes.plot(samples, [row] * len(samples), ".", color=MUTED)
        if point.low is not None and point.high is not None:
            axes.plot([point.low, point.high], [row, row], color=marks["color"], linewidth=1.6)
        axes.plot([point.y], [row], marker=marks["marker"], color=marks["color"])
        axes.annotate(
            text, (point.y, row), (0, 6),
            textcoords="offset points", ha="center", fontsize=8, color=INK,
        )  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.7)
    axes.set_xlim(left=0)
    axes.grid(axis="x")
    axes.set_xlabel(f"throughput, {measured.unit.iloc[0]} (right: faster)")
    return figure


def plot_speedup(title: str, rows: "DataFrame") -> Optional[Plot]:
    """Plot a throughput table's speedups over devices; None if no series has two topologies."""
    if not has_scaling(rows):
        return None
    baselines, measured = _list_baselines(rows), list_measured(rows)
    against = baselines[0] if len(baselines) == 1 else "the smallest topology of each curve"
    caption = (
        f"Points: ratio of medians over repeats, {count_repeats(measured)}, against "
        f"{against}; {_describe_ratio_bars(measured, 'speedup')}."
    )
    chart = make_speedup_chart(rows)
    return make_plot(
        "speedup", title, "Speedup by number of devices", caption, lambda: draw_chart(chart)
    )


def make_speedup_chart(rows: "DataFrame") -> PlotChart:
    """Make the chart of speedup over device counts, with the ideal speedup as reference line."""
    return _make_chart(rows, "speedup", "speedup (higher: faster)", ideal=_list_ideal(rows))


def _list_baselines(rows: "DataFrame") -> list[Topology]:
    """Return the topologies that speedups of these cases are relative to, the smallest first."""
    return sorted(map(parse_topology, set(rows.baseline) - {""}))


def _list_ideal(rows: "DataFrame") -> tuple[tuple[float, float], ...]:
    """Return the points (x, y) of the ideal speedup; () if baselines of the series differ."""
    baselines = _list_baselines(rows)
    if len(baselines) > 1:
        return ()
    base = baselines[0].world_size
    ordered = sorted(place_topologies(rows).items(), key=lambda item: item[1])
    return tuple((x, topology.world_size / base) for topology, x in ordered)


def plot_efficiency(title: str, rows: "DataFrame") -> Optional[Plot]:
    """Plot a throughput table's efficiency over devices; None if no series has two topologies."""
    if not has_scaling(rows):
        return None
    measured, (name, *_) = list_measured(rows), find_efficiencies(rows)
    kind = name.partition("_")[0]
    caption = (
        "Points: speedup divided by the ideal speedup, at the same "
        f"{'global batch size' if kind == 'strong' else 'batch size per device'}; ratios "
        f"of medians over repeats, {count_repeats(measured)}; "
        f"{_describe_ratio_bars(measured, name)}."
    )
    chart, heading = make_efficiency_chart(rows), f"{kind.title()}-scaling efficiency"
    return make_plot("efficiency", title, heading, caption, lambda: draw_chart(chart))


def make_efficiency_chart(rows: "DataFrame") -> PlotChart:
    """Make the chart of scaling efficiency in percent, with 100 % as reference line."""
    ideal = tuple((x, 100.0) for x in sorted(place_topologies(rows).values()))
    name, label = find_efficiencies(rows)[0], "efficiency, % (higher: better)"
    return _make_chart(rows, name, label, 100.0, ideal, is_share=True)


def _make_chart(
    rows: "DataFrame",
    name: str,
    y_label: str,
    factor: float = 1.0,
    ideal: tuple[tuple[float, float], ...] = (),
    is_share: bool = False,
) -> PlotChart:
    """Make a chart of the column `name`, multiplied by `factor`, over the device count.

    Each series (framework, variant) is a line; `ideal` has the points (x, y) of a reference line.
    With `is_share` the values are percentages, whose axis is never logarithmic.
    """
    measured, places = list_measured(rows), place_topologies(rows)
    points = make_points(measured, name, {str(t): x for t, x in places.items()}, factor)
    series: dict[int, list[PlotPoint]] = {number: [] for number in measured.column}
    for case_id, number in zip(measured.index, measured.column):
        series[number] += [points[case_id]] if case_id in points else []
    return PlotChart(
        series=tuple(
            PlotSeries(label, tuple(sorted(own, key=lambda point: point.x)))
            for label, own in zip(list_series(measured), series.values())
        ),
        x_label="devices, with their topology",
        y_label=y_label,
        ticks=tuple((x, f"{t.world_size}\n{t}") for t, x in places.items()),
        ideal=ideal,
        is_share=is_share,
    )


def make_points(
    rows: "DataFrame",
    name: str,
    places: Mapping[str, float],
    factor: float = 1.0,
    by: str = "topology",
) -> dict[str, PlotPoint]:
    """Return the point of each case that has a value in the column `name`, by case id.

    `places` has x by the case's value in the column `by`; y is the value times `factor`. The error
    bar is the interval or, for a median without interval, the range of the repeats.
    """
    column = COLUMNS[name]
    intervals = read_intervals(rows, column.bounds)
    if name == "samples_per_s":
        ranges = read_intervals(rows, ("smallest", "largest"))
        several = rows.repeats_measured > 1
        ranges = [own if is_range else None for own, is_range in zip(ranges, several)]
    else:
        ranges = read_intervals(rows, column.extremes)
    found = {}
    for case_id, place, y, interval, extent in zip(
        rows.index, rows[by], list_values(rows[name]), intervals, ranges
    ):
        bar = interval or extent
        ends = (factor * bar.low, factor * bar.high) if bar else (None, None)
        if y is not None:
            found[case_id] = PlotPoint(places[place], factor * y, *ends)
    return found


def list_measured(rows: "DataFrame") -> "DataFrame":
    """Return the rows of cases that have a valid repeat."""
    return rows[rows.repeats_measured > 0]


def list_series(measured: "DataFrame") -> list[str]:
    """Return a legend label for each series: framework, variant, and compiler if they differ."""
    first = measured.drop_duplicates("column")
    return [
        f"{label}, {compiler}"
        if has_compilers and compiler != VARIANT_AXES["compiler"]
        else str(label)
        for label, compiler, has_compilers in zip(first.label, first.compiler, first.has_compilers)
    ]


def place_topologies(rows: "DataFrame") -> dict[Topology, float]:
    """Return the x coordinate of each measured topology: its device count.

    If several have equal device counts, it is the position in ascending order, from 1.
    """
    measured = sorted(map(parse_topology, set(list_measured(rows).topology)))
    if len({topology.world_size for topology in measured}) == len(measured):
        return {topology: float(topology.world_size) for topology in measured}
    ordered = sorted(measured, key=lambda topology: (topology.world_size, topology))
    return {topology: float(place) for place, topology in enumerate(ordered, start=1)}


def has_scaling(rows: "DataFrame") -> bool:
    """Return whether any series was measured on at least two topologies."""
    return bool((list_measured(rows).column.value_counts() > 1).any())


def count_repeats(measured: "DataFrame") -> str:
    """Describe the number of repeats: "n = 6 repeats", "n = 2 to 6 repeats"."""
    numbers = sorted(set(measured.repeats_measured))
    if numbers == [1]:
        return "n = 1 repeat"
    text = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
    return f"n = {text} repeats"


def describe_bars(measured: "DataFrame") -> str:
    """Describe the error bars of medians over repeats, for a caption."""
    lacks_interval = measured.interval_low.isna()
    has_range = (lacks_interval & (measured.repeats_measured > 1)).any()
    if not lacks_interval.all() and has_range:
        return "bars: 95 % interval of the median; with too few repeats, smallest to largest value"
    if not lacks_interval.all():
        return "bars: 95 % interval of the median"
    return (
        "bars: from the smallest to the largest repeat"
        if has_range
        else "no bar for a single repeat"
    )


def _describe_ratio_bars(measured: "DataFrame", name: str) -> str:
    """Describe the error bars of the ratios in the column `name`, for a caption."""
    if measured[f"{name}_low"].notna().any():
        return "bars: 95 % interval of the ratio, if there are enough repeats"
    return "too few repeats for error bars"
