"""Figures: their values, what they say, and the same bytes for the same input."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy
import pytest
from builders import make_outcomes, make_planned_case, make_rank, make_record
from report_values import (
    HOSTILE,
    make_cases,
    make_measured,
    plot_cases,
    rename,
    summarize_cases,
)

from dlperf_slurm.errors import InputError
from dlperf_slurm.reports.plots import (
    Plot,
    draw_for_page,
    latency,
    list_for_page,
    make_name,
    make_names_unique,
    scaling,
)
from dlperf_slurm.reports.plots.distribution import find_range, list_quantiles, plot_distribution
from dlperf_slurm.reports.plots.lines import (
    PlotChart,
    PlotPoint,
    PlotSeries,
    draw_chart,
    open_panels,
)
from dlperf_slurm.reports.plots.steps import (
    CaseSteps,
    draw_timeline,
    list_case_steps,
    list_row_names,
    plot_ranks,
    plot_timeline,
)
from dlperf_slurm.reports.plots.style import (
    add_legend,
    lay_out,
    list_handles,
    mark_series,
    use_style,
)
from dlperf_slurm.reports.tables import list_groups
from dlperf_slurm.reports.tables.inference import LATENCIES
from dlperf_slurm.reports.tables.training import THROUGHPUT
from dlperf_slurm.results.cases import analyze
from dlperf_slurm.results.collect import Outcome

pytestmark = pytest.mark.integration

SVG = "{http://www.w3.org/2000/svg}"


def list_texts(plot: Plot) -> list[str]:
    """List the texts in the figure."""
    root = ElementTree.fromstring(plot.svg)
    return ["".join(element.itertext()).strip() for element in root.iter(f"{SVG}text")]


def make_rows(*cases):
    """Return the cases of the only table of throughputs."""
    ((_, rows),) = list_groups(THROUGHPUT, summarize_cases(cases or make_cases()).results)
    return rows


def plot_throughput(*cases):
    ((title, rows),) = list_groups(THROUGHPUT, summarize_cases(cases or make_cases()).results)
    repeats = {
        c.case.case_id: [record.samples_per_s for record in c.records]
        for c in cases or make_cases()
    }
    return scaling.plot_throughput(title, rows, repeats)


@pytest.fixture(scope="module")
def plots() -> dict[str, Plot]:
    """All figures of the made run, by name."""
    cases = make_cases()
    return {plot.name: plot for plot in plot_cases(cases, is_every_case=True)}


def make_steps(seconds, hosts=("a", "b")) -> CaseSteps:
    """Make a case whose repeats have these step times [ranks, steps]; repeat 1 is the slowest."""
    record = make_record(ranks=tuple(make_rank(rank, host=host) for rank, host in enumerate(hosts)))
    read = {n: Outcome("case", n, record, "", rank_step_seconds=own) for n, own in seconds.items()}
    rates = dict(zip(seconds, (90.0, 110.0, 100.0)))
    return CaseSteps("case", rates, lambda _, repeat: read[repeat])


@pytest.fixture
def steps() -> CaseSteps:
    """Three repeats of two ranks; the first has a stall at its tenth step."""
    rng = numpy.random.default_rng(1)
    repeats = {}
    for number in (1, 2, 3):
        seconds = 0.05 + 0.001 * rng.random((2, 30))
        if number == 1:
            seconds[1, 9] = 0.4
        repeats[number] = seconds
    return make_steps(repeats)


def test_run_has_one_figure_of_each_kind_per_table_and_case(plots):
    kinds = sorted(re.split("-resnet-?50", name)[0] for name in plots)
    of_the_table = ["throughput", "speedup", "efficiency", "step-times"]
    of_cases = ["steps-jax", "steps-jax", "steps-pytorch", "steps-pytorch"]
    assert kinds == sorted([*of_the_table, *of_cases, *["ranks-jax", "ranks-pytorch"]])


def test_files_say_what_they_show_of_which_run_and_have_no_dates(plots):
    summary = summarize_cases(make_cases())
    for plot in plots.values():
        assert plot.pdf.startswith(b"%PDF-"), plot.name
        assert plot.png.startswith(b"\x89PNG"), plot.name
        assert not re.search(rb"dc:date|CreationDate|Matplotlib v", plot.svg + plot.pdf), plot.name
        texts = " ".join(list_texts(replace(plot, svg=plot.file_svg)))
        # the title of a table names the model, a case id does not
        is_named = plot.subject.startswith(summary.models)
        source = summary.place if is_named else summary.subject
        for text in (plot.title, plot.subject, f"{source}; run ", plot.caption):
            assert text in texts, plot.name
        assert texts.count(summary.models) == 1, plot.name
    texts = list_texts(plots["throughput-resnet-50-fp32-batch-size-8-per-device"])
    assert {"throughput, images/s (higher: faster)", "jax", "pytorch", "1n1g", "1n2g"} <= set(texts)


def test_same_input_gives_the_same_bytes_whatever_the_user_has_set(plots):
    import matplotlib

    # of what the figures set themselves, and of what they leave at matplotlib's default
    set_by_us = {"font.size": 30, "lines.linewidth": 9, "svg.hashsalt": None}
    others = {"savefig.bbox": "tight", "xtick.direction": "in", "figure.subplot.left": 0.4}
    with matplotlib.rc_context({**set_by_us, **others}):
        plot = plot_throughput()
    assert plot.svg == plots[plot.name].svg


def test_throughput_has_medians_with_their_intervals():
    rows = make_rows()
    jax = scaling.make_throughput_chart(rows).series[0]
    case = rows.iloc[0]
    assert jax.label == "jax"
    # 8 samples in 0.103 s, the median of seven
    assert jax.points[0].y == pytest.approx(8 / 0.103)
    assert (jax.points[0].low, jax.points[0].high) == (case.interval_low, case.interval_high)


def test_throughput_of_few_repeats_has_their_range():
    pytorch = scaling.make_throughput_chart(make_rows()).series[1]
    # rank 1 is a thousandth slower
    ends = pytest.approx((16 / 0.11011, 16 / 0.1001))
    assert (pytorch.points[1].low, pytorch.points[1].high) == ends


def test_throughput_on_one_topology_has_a_row_and_a_number_per_framework():
    cases = (make_measured("jax", "1n1g", [0.1, 0.1]), make_measured("mxnet", "1n1g", [0.2]))
    assert {"jax", "mxnet", "80", "40"} <= set(list_texts(plot_throughput(*cases)))


def test_table_without_a_measured_case_has_no_figure():
    case = make_measured("jax", "1n1g", [], ["not submitted"])
    rows = make_rows(case)
    assert plot_throughput(case) is None
    assert scaling.plot_speedup("", rows) is None
    assert scaling.plot_efficiency("", rows) is None
    assert plot_distribution("", rows, {}) is None


def test_frameworks_on_a_topology_each_have_no_scaling_to_show():
    rows = make_rows(make_measured("jax", "1n1g", [0.1]), make_measured("mxnet", "1n2g", [0.1]))
    assert scaling.plot_speedup("", rows) is None
    assert scaling.plot_efficiency("", rows) is None


@pytest.mark.parametrize(
    ("repeats", "words"),
    [
        ([0.1], ("n = 1 repeat", "no bar")),
        ([0.1, 0.2], ("n = 2 repeats", "smallest", "largest")),
        ([0.1] * 6, ("n = 6 repeats", "95 % interval")),
    ],
)
def test_caption_says_how_many_repeats_and_what_the_bar_is(repeats, words):
    caption = plot_throughput(make_measured("jax", "1n1g", repeats)).caption
    assert [word for word in words if word not in caption] == []


def test_ideal_speedup_is_that_of_the_devices():
    assert scaling.make_speedup_chart(make_rows()).ideal == ((1.0, 1.0), (2.0, 2.0))


def test_ideal_line_is_left_out_where_baselines_differ():
    rows = make_rows(
        make_measured("jax", "1n1g", [0.1]),
        make_measured("jax", "1n2g", [0.1]),
        make_measured("mxnet", "1n2g", [0.1]),
    )
    assert scaling.make_speedup_chart(rows).ideal == ()
    assert "smallest topology" in scaling.plot_speedup("", rows).caption


def test_speedup_and_efficiency_have_the_tables_values_and_intervals():
    rows = make_rows()
    case = rows.iloc[1]
    fast = scaling.make_speedup_chart(rows).series[0].points[1]
    assert (fast.y, fast.low) == (case.speedup, case.speedup_low)
    share = scaling.make_efficiency_chart(rows).series[0].points[1]
    assert share.y == pytest.approx(100 * case.weak_scaling_efficiency)
    assert share.high == pytest.approx(100 * case.weak_scaling_efficiency_high)


def test_topologies_of_as_many_devices_stand_beside_each_other():
    cases = [make_measured("jax", topology, [0.1]) for topology in ("1n1g", "1n2g", "2n1g")]
    ticks = scaling.make_throughput_chart(make_rows(*cases)).ticks
    assert ticks == ((1.0, "1\n1n1g"), (2.0, "2\n1n2g"), (3.0, "2\n2n1g"))


@pytest.mark.parametrize(("count", "titles"), [(4, 0), (5, 5)])
def test_many_frameworks_get_a_panel_each(count, titles):
    names = ["jax", "mxnet", "oneflow", "paddle", "pytorch"][:count]
    cases = [make_measured(n, t, [0.1, 0.11]) for n in names for t in ("1n1g", "1n2g")]
    with use_style():
        figure = draw_chart(scaling.make_throughput_chart(make_rows(*cases)))
    shown = [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible()]
    assert [*filter(None, shown)] == names[:titles]


def test_nothing_lies_outside_its_axes():
    series = PlotSeries("a", (PlotPoint(1, 5, 4, 9), PlotPoint(2, 6, 1, 30)))
    chart = PlotChart((series,), "x", "y", ((1, "1"), (2, "2")))
    with use_style():
        low, high = draw_chart(chart).axes[0].get_ylim()
    assert low == 0
    assert high > 30


def test_name_of_a_framework_is_text_whatever_is_in_it():
    cases = [rename(make_measured("jax", t, [0.1]), framework=HOSTILE) for t in ("1n1g", "1n2g")]
    assert HOSTILE in list_texts(plot_throughput(*cases))


def test_latencies_are_in_ms_by_batch_size():
    chart, plot = plot_latencies(1, 8)
    assert [series.label for series in chart.series] == ["median", "90 %", "99 %", "slowest"]
    medians = chart.series[0].points
    assert [(point.x, point.y) for point in medians] == [(1.0, 2.0), (8.0, 16.0)]
    assert {"fp32", "latency of a batch, ms (lower: faster)", "8"} <= set(list_texts(plot))


def plot_latencies(*sizes):
    """Return the chart and the plot of batches of 2 ms per sample."""
    cases = [
        make_outcomes(
            make_planned_case(mode="infer", batch_size_per_device=size, repeats=1),
            [500.0],
            batch_seconds=[0.002 * size] * 1000,
        )
        for size in sizes
    ]
    ((title, rows),) = list_groups(LATENCIES, summarize_cases(cases).results)
    places = {str(size): float(size) for size in sizes}
    return latency.make_chart(rows, ["fp32"], places), latency.plot_latency(title, rows)


def test_latencies_of_one_batch_size_are_no_figure():
    assert plot_latencies(8)[1] is None


def test_quantiles_keep_the_smallest_and_the_largest():
    shares, values = list_quantiles(list(range(1000, 0, -1)))
    assert (values[0], values[-1], shares[-1]) == (1, 1000, 1.0)
    assert len(values) <= 200
    assert values == sorted(values)
    assert list_quantiles([3.0, 1.0, 2.0]) == ([1 / 3, 2 / 3, 1.0], [1.0, 2.0, 3.0])


def test_distribution_ends_where_nearly_all_steps_do():
    assert find_range([([0.01] * 99 + [5.0]), [0.02] * 100]) == (10.0, 20.0)


def test_timeline_has_a_strip_per_repeat_with_its_median_and_stalls(steps):
    texts = list_texts(plot_timeline(steps))
    strips = [text for text in texts if text.startswith("repeat")]
    assert [strip.split(",")[0] for strip in strips] == ["repeat 1", "repeat 2", "repeat 3"]
    assert strips[0].endswith("1 stall")
    assert not strips[1].endswith("stall")


def make_ranks_of(hosts: tuple[str, ...], steps: int = 20) -> Outcome:
    seconds = 0.1 + numpy.zeros((len(hosts), steps))
    record = make_record(ranks=tuple(make_rank(rank, host=host) for rank, host in enumerate(hosts)))
    return Outcome("case", 1, record, "", seconds)


@pytest.mark.parametrize(("count", "keys", "bands"), [(1, 0, 0), (8, 1, 0), (9, 0, 1)])
def test_timeline_has_a_line_and_a_key_per_rank_or_a_band_of_many(count, keys, bands):
    with use_style():
        figure = draw_timeline([make_ranks_of(("a",) * count)])
    assert (len(figure.legends), len(figure.axes[0].collections)) == (keys, bands)


def test_ranks_are_shown_of_the_middle_repeat_with_their_hosts(steps):
    plot = plot_ranks(steps)
    assert "repeat 3 of 3" in plot.caption
    assert {"0 on a", "1 on b"} <= set(list_texts(plot))
    assert plot_ranks(make_steps({1: numpy.ones((1, 20))}, ("a",))) is None


def test_of_many_ranks_each_hosts_first_one_is_named():
    assert list_row_names(make_ranks_of(("a",) * 8 + ("b",) * 12)) == [(0, "0 on a"), (8, "8 on b")]
    # and of too many hosts none
    assert list_row_names(make_ranks_of(tuple(f"n{i}" for i in range(17)))) == []


def test_repeats_without_step_times_are_left_out():
    cases = make_cases()
    found = {steps.case_id: len(steps.repeats) for steps in list_case_steps(analyze(cases), None)}
    assert found["pytorch-resnet50-1n2g-bs8-fp32"] == 2
    assert "pytorch-resnet50-4n8g-bs8-fp32" not in found


@pytest.mark.parametrize("text", [HOSTILE, "../../etc/passwd", "a/b\nc", "é" * 300])
def test_file_names_are_plain(text):
    assert re.fullmatch(r"plot[a-z0-9_.-]{0,117}", make_name("plot", text))


def test_names_that_are_alike_get_numbers():
    plots = [Plot(name, "", "", "", b"", b"", b"") for name in ("a", "a", "b")]
    assert [plot.name for plot in make_names_unique(plots)] == ["a", "a-2", "b"]


def test_step_times_that_are_gone_when_they_are_drawn_are_an_error():
    steps = list_case_steps(analyze(make_cases()), lambda *repeat: Outcome(*repeat, None, "x"))[0]
    with pytest.raises(InputError, match="changed while"):
        plot_timeline(steps)


def test_page_alone_has_no_figure_that_it_does_not_show(plots):
    cases = make_cases()
    with draw_for_page():
        drawn = plot_cases(cases, is_every_case=True)
    assert drawn == list_for_page(plots.values())
    assert {plot.name for plot in plots.values()} > {plot.name for plot in drawn}
    assert all(list(plot.files) == [f"{plot.name}.svg"] for plot in drawn)


@pytest.mark.parametrize("names", [["1n1g"], [f"{number} of twenty letters" for number in "12345"]])
@pytest.mark.parametrize("panels", [1, 5])
@pytest.mark.parametrize("is_by_hand", [True, False])
def test_legend_ends_within_its_figure_and_above_the_panels(names, panels, is_by_hand):
    with use_style():
        figure, axes = open_panels(panels, "x", "y", names if is_by_hand else None)
        for index, name in enumerate(names):
            axes[0].plot([0, 1], [0, 100], label=name, **mark_series(index))
        axes[0].set_title("title")
        add_legend(figure, list_handles(axes))
        lay_out(figure)
        (legend,) = figure.legends
        extent = legend.get_window_extent()
    assert 0 <= extent.x0 < extent.x1 <= figure.bbox.x1
    assert axes[0].title.get_window_extent().y1 <= extent.y0 < extent.y1 <= figure.bbox.y1
