"""A table of throughputs -> throughput, speedup and efficiency over the number of devices."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.topology import Topology, parse_topology
from dlperf_slurm.reports.plots import Plot, make_plot
from dlperf_slurm.reports.plots.lines import Chart, Point, Series, draw_chart
from dlperf_slurm.reports.plots.style import INK, MUTED, WIDTH_INCHES, mark_series, open_figure
from dlperf_slurm.reports.tables import ShownCase, find_range, make_throughput_cell
from dlperf_slurm.reports.tables.throughput import ThroughputColumn, ThroughputTable
from dlperf_slurm.results.cases import VARIANT_AXES
from dlperf_slurm.results.ratios import Ratio
from dlperf_slurm.stats.median import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_throughput(table: ThroughputTable) -> Optional[Plot]:
    """The plot of throughput over topologies; None where nothing was measured."""
    topologies = list(place_topologies(table))
    if not topologies:
        return None
    cases = table.measured
    caption = f"Points: median over repeats, {count_repeats(cases)}; {describe_bars(cases)}."
    if len(topologies) == 1:
        title = f"Throughput on {topologies[0]}, {table.unit}"
        caption += " Small dots: the repeats."
        return make_plot("throughput", table.title, title, caption, lambda: _draw_dots(table))
    title, chart = f"Throughput over devices, {table.unit}", make_throughput_chart(table)
    return make_plot("throughput", table.title, title, caption, lambda: draw_chart(chart))


def make_throughput_chart(table: ThroughputTable) -> Chart:
    def find_point(x: float, case: ShownCase) -> Optional[Point]:
        return make_point(x, case.samples_per_s, find_bar(case.interval, case.samples))

    return _make_chart(table, f"throughput, {table.unit}", find_point)


def _draw_dots(table: ThroughputTable) -> "Figure":
    """A row for each framework, in the table's order from the top."""
    names = [name for name, _ in list_columns(table)]
    figure = open_figure(WIDTH_INCHES, 0.9 + 0.34 * len(names))
    axes = figure.add_subplot()
    for row, case in enumerate(table.measured):
        marks = mark_series(row)
        axes.plot(case.samples, [row] * len(case.samples), ".", color=MUTED)
        bar = find_bar(case.interval, case.samples)
        if bar is not None:
            axes.plot([bar.low, bar.high], [row, row], color=marks["color"], linewidth=1.6)
        axes.plot([case.samples_per_s], [row], marker=marks["marker"], color=marks["color"])
        axes.annotate(
            make_throughput_cell(case).text, (case.samples_per_s or 0, row), (0, 6),
            textcoords="offset points", ha="center", fontsize=8, color=INK,
        )  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.7)
    axes.set_xlim(left=0)
    axes.grid(axis="x")
    axes.set_xlabel(f"throughput, {table.unit}")
    return figure


def plot_speedup(table: ThroughputTable) -> Optional[Plot]:
    """The plot of speedups over devices; None where no column has two topologies."""
    if not has_scaling(table):
        return None
    baselines = _list_baselines(table)
    against = baselines[0] if len(baselines) == 1 else "each one's smallest topology"
    caption = (
        f"Points: ratio of medians over repeats, {count_repeats(table.measured)}, against "
        f"{against}; {_describe_ratio_bars(case.speedup for case in table.measured)}."
    )
    title, chart = "Speedup over devices", make_speedup_chart(table)
    return make_plot("speedup", table.title, title, caption, lambda: draw_chart(chart))


def make_speedup_chart(table: ThroughputTable) -> Chart:
    return _make_chart(
        table, "speedup", lambda x, case: make_ratio_point(x, case.speedup), _list_ideal(table)
    )


def _list_baselines(table: ThroughputTable) -> list[Topology]:
    return sorted({c.baseline for c in table.columns if c.baseline is not None})


def _list_ideal(table: ThroughputTable) -> tuple[tuple[float, float], ...]:
    """The line of ideal speedups [x, y]; no points where the baselines differ."""
    baselines = _list_baselines(table)
    if len(baselines) > 1:
        return ()
    base = baselines[0].world_size
    ordered = sorted(place_topologies(table).items(), key=lambda item: item[1])
    return tuple((x, topology.world_size / base) for topology, x in ordered)


def plot_efficiency(table: ThroughputTable) -> Optional[Plot]:
    """The plot of weak-scaling efficiency; None where no column has two topologies."""
    if not has_scaling(table):
        return None
    bars = _describe_ratio_bars(case.weak_scaling_efficiency for case in table.measured)
    caption = (
        "Points: speedup over the ideal one, at the same batch size per device; ratios of medians "
        f"over repeats, {count_repeats(table.measured)}; {bars}."
    )
    title, chart = "Weak-scaling efficiency", make_efficiency_chart(table)
    return make_plot("efficiency", table.title, title, caption, lambda: draw_chart(chart))


def make_efficiency_chart(table: ThroughputTable) -> Chart:
    ideal = tuple((x, 100.0) for x in sorted(place_topologies(table).values()))
    return _make_chart(
        table,
        "efficiency, %",
        lambda x, case: make_ratio_point(x, case.weak_scaling_efficiency.scale(100)),
        ideal,
        is_share=True,
    )


def _make_chart(
    table: ThroughputTable,
    y_label: str,
    find_point: Callable[[float, ShownCase], Optional[Point]],
    ideal: tuple[tuple[float, float], ...] = (),
    is_share: bool = False,
) -> Chart:
    """One series per column; `find_point` takes x and a case that was measured."""
    places = place_topologies(table)
    series = []
    for name, column in list_columns(table):
        points = [find_point(places[parse_topology(c.topology)], c) for c in column.measured]
        kept = sorted((p for p in points if p is not None), key=lambda point: point.x)
        series.append(Series(name, tuple(kept)))
    return Chart(
        series=tuple(series),
        x_label="devices, with their topology",
        y_label=y_label,
        ticks=tuple((x, f"{t.world_size}\n{t}") for t, x in places.items()),
        ideal=ideal,
        ideal_label="ideal" if ideal else "",
        is_share=is_share,
    )


def list_columns(table: ThroughputTable) -> list[tuple[str, ThroughputColumn]]:
    """The columns that have a figure, with the name they have in a legend."""
    return [(_name(table, column), column) for column in table.columns if column.baseline]


def _name(table: ThroughputTable, column: ThroughputColumn) -> str:
    has_name = table.has_compilers and column.compiler != VARIANT_AXES["compiler"]
    return f"{column.label}, {column.compiler}" if has_name else column.label


def place_topologies(table: ThroughputTable) -> dict[Topology, float]:
    """x of each topology that was measured: its devices, or its place where two have as many."""
    found = {case.topology for case in table.measured}
    measured = [topology for topology in table.topologies if str(topology) in found]
    if len({topology.world_size for topology in measured}) == len(measured):
        return {topology: float(topology.world_size) for topology in measured}
    ordered = sorted(measured, key=lambda topology: (topology.world_size, topology))
    return {topology: float(place) for place, topology in enumerate(ordered, start=1)}


def find_bar(interval: Optional[Interval], samples: Sequence[float]) -> Optional[Interval]:
    """The interval; without one the range of the repeats, if there are two."""
    return find_range(samples) if interval is None else interval


def has_scaling(table: ThroughputTable) -> bool:
    """Whether a column was measured on two topologies at least."""
    return any(len(column.measured) > 1 for column in table.columns)


def make_point(x: float, y: Optional[float], bar: Optional[Interval]) -> Optional[Point]:
    """A point with its bar, if it has one; None where there is no figure."""
    if y is None or bar is None:
        return None if y is None else Point(x, y)
    return Point(x, y, bar.low, bar.high)


def make_ratio_point(x: float, ratio: Ratio) -> Optional[Point]:
    return make_point(x, ratio.value, ratio.interval)


def count_repeats(cases: Sequence[ShownCase]) -> str:
    """Such as "n = 6 repeats", "n = 2 to 6 repeats"."""
    numbers = sorted({len(case.samples) for case in cases})
    if numbers == [1]:
        return "n = 1 repeat"
    text = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
    return f"n = {text} repeats"


def describe_bars(cases: Sequence[ShownCase]) -> str:
    """What the bars of medians over repeats are."""
    has_interval = any(case.interval is not None for case in cases)
    has_range = any(case.interval is None and len(case.samples) > 1 for case in cases)
    if has_interval and has_range:
        return "bars: the 95 % interval of the median, or the range of too few repeats"
    if has_interval:
        return "bars: the 95 % interval of the median"
    return "bars: from the smallest to the largest repeat" if has_range else "one repeat has no bar"


def _describe_ratio_bars(ratios: Iterable[Ratio]) -> str:
    """What the bars of speedups and efficiencies are; the baseline itself never has one."""
    if any(ratio.interval is not None for ratio in ratios):
        return "bars: the 95 % interval of the ratio, where there are repeats enough for one"
    return "too few repeats for bars"
