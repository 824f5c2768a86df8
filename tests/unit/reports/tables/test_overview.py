"""An overview has every case of a model once, by series and place."""

from functools import cache

import pytest
from report_values import make_measured, rename, summarize_cases

from dlperf_slurm.reports.formats.page.charts import list_ratio_ticks, list_ticks
from dlperf_slurm.reports.formats.page.overview import make_sections
from dlperf_slurm.reports.tables.overview import (
    choose_rows,
    make_overviews,
    tabulate_cases,
    tabulate_overview,
)
from dlperf_slurm.results.number_formats import write_digits

STEADY = [0.1, 0.1001, 0.1002, 0.1003, 0.1004, 0.1005, 0.1006]


def make_cases():
    """Two frameworks and two precisions; mxnet has no second topology, and 2n2g is left out."""
    half = [0.5 * seconds for seconds in STEADY]
    return [
        make_measured("jax", "1n1g", STEADY),
        make_measured("jax", "1n2g", [1.25 * seconds for seconds in STEADY]),
        make_measured("jax", "2n2g", [], reason="the site has 1 node"),
        rename(make_measured("jax", "1n1g", half), precision="amp-bf16"),
        rename(make_measured("jax", "1n2g", half), precision="amp-bf16"),
        make_measured("mxnet", "1n1g", STEADY),
    ]


@cache
def summarize_made():
    return summarize_cases(make_cases())


def make_overview(*cases):
    summary = summarize_cases(cases) if cases else summarize_made()
    (overview,) = make_overviews(summary.results, summary.marks)
    return overview


def make_section(*cases):
    summary = summarize_cases(cases) if cases else summarize_made()
    (section,) = make_sections(make_overviews(summary.results, summary.marks), summary.footnotes)
    return section


def test_rows_are_series_and_columns_are_topologies():
    overview = make_overview()
    assert [(row.label, row.precision) for row in overview.rows] == [
        ("jax", "fp32"),
        ("mxnet", "fp32"),
        ("jax", "amp-bf16"),
    ]
    assert overview.places == ("1n1g", "1n2g", "2n2g")
    rates = overview.read("samples_per_s")
    assert rates[overview.rows[0].cases[1]] == pytest.approx(128.0, rel=0.01)


def test_place_without_a_figure_is_told_and_no_column():
    table = tabulate_overview(make_overview())
    assert "2n2g" not in table.header
    assert table.caption.endswith("not measured: 2n2g")


def test_marks_of_a_place_without_a_figure_lead_to_its_footnotes():
    overview = make_overview()
    (case,) = overview.cases.index[overview.cases.topology == "2n2g"]
    marks = "".join(f"[{number}]" for number in sorted(overview.cases.marks[case]))
    assert marks
    assert tabulate_overview(overview, marks=True).caption.endswith(f"not measured: 2n2g {marks}")


def test_last_columns_are_efficiency_and_what_the_precision_brings_at_the_largest():
    table = tabulate_overview(make_overview())
    assert table.header[-2:] == ("efficiency at 1n2g", "speedup over fp32 at 1n2g")
    assert table.rows[0][-2].value == pytest.approx(0.8, abs=0.01)
    assert table.rows[2][-1].value == pytest.approx(2.5, abs=0.01)


@pytest.mark.parametrize(("factor", "unit"), [(1, "TFLOP/s"), (1000, "GFLOP/s")])
def test_operations_have_the_unit_of_their_size(factor, unit):
    case = make_measured("jax", "1n1g", [factor * seconds for seconds in STEADY])
    assert f"{unit} per device" in tabulate_cases(make_overview(case)).header


def test_fastest_row_of_each_framework_comes_before_faster_ones_of_another():
    assert [row.label for row in choose_rows(make_overview(), 2).rows] == ["mxnet", "jax"]


def test_small_plot_has_the_efficiency_at_each_topology():
    first, second, third = make_section().trends
    assert first.values == pytest.approx((1.0, 0.8), abs=0.01)
    assert first.tip.endswith("jax, fp32, 8: 100 % at 1n1g, 80 % at 1n2g")
    assert first.lowest <= 0.8
    assert second.places == (0,)
    assert third.count == 2


def test_charts_are_of_throughput_efficiency_and_precision():
    titles = [chart.title for chart in make_section().charts]
    assert titles == [
        "Throughput, images/s, over topology",
        "fp32: throughput relative to the fastest, %",
        "Weak-scaling efficiency, %",
        "Throughput / throughput in the reference precision",
    ]


def test_bars_are_relative_to_the_fastest_where_there_are_several():
    bars = make_section().charts[1]
    assert [label for _, label in bars.x_ticks] == ["1n1g"]
    heights = {line.name: line.points[0].y for line in bars.lines}
    assert max(heights.values()) == 100
    assert len({dot.x for _, dots in bars.placed_lines for dot in dots}) == len(heights) == 2


def test_point_of_a_chart_says_its_figure_with_its_interval():
    line = make_section().charts[0].lines[0]
    assert line.tips[0].startswith("jax, fp32, 8 at 1n1g: 79.")
    assert "images/s (" in line.tips[0]


@pytest.mark.parametrize(
    ("highest", "ticks"), [(80, [0, 20, 40, 60, 80]), (1.06, [0, 0.25, 0.5, 0.75, 1.0]), (0, [0])]
)
def test_ticks_are_round_and_few(highest, ticks):
    assert list_ticks(highest) == pytest.approx(ticks)


def test_ticks_of_ratios_begin_below_the_lowest():
    assert list_ratio_ticks(320, 9400) == [200, 500, 1000, 2000, 5000]
    assert list_ratio_ticks(23, 95) == [20, 50, 100]


def test_reference_precision_alone_is_once_itself():
    table = tabulate_overview(make_overview(*make_cases(), make_measured("mxnet", "1n2g", STEADY)))
    assert table.rows[1][0].text == "mxnet"
    assert table.rows[1][-1].value == 1.0


def test_axis_begins_at_half_of_the_ideal_where_all_is_above():
    efficiency = make_section().charts[2]
    assert [label for _, label in efficiency.y_ticks] == ["60", "80", "100"]
    slow = [3 * seconds for seconds in STEADY]
    cases = (make_measured("jax", "1n1g", STEADY), make_measured("jax", "1n2g", slow))
    assert make_section(*cases).charts[1].y_ticks[0][1] == "0"


@pytest.mark.parametrize(
    ("value", "text"),
    [(17048.4, "17048"), (75.728, "75.73"), (0.0123456, "0.01235"), (0.0, "0.000")],
)
def test_digits_are_written_without_an_exponent(value, text):
    assert write_digits(value) == text


def test_batch_sizes_are_a_column_where_rows_differ_in_them():
    cases = [
        rename(make_measured("jax", "1n1g", STEADY), batch_size_per_device=size) for size in (8, 16)
    ]
    table = tabulate_overview(make_overview(*cases))
    assert table.header[:2] == ("framework", "batch size")
    assert [row[1].text for row in table.rows] == ["8", "16"]
