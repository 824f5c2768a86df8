"""Reports: the same summary on a terminal, as Markdown, CSV and JSON, with no hole in it."""

import csv
import io
import json

import pytest
from builders import make_manifest, make_outcomes, make_planned_case
from rich.console import Console

from dlperf_slurm.reports import FILE_FORMATS, load_format
from dlperf_slurm.reports.terminal import print_summary, print_table
from dlperf_slurm.reports.text import Grid, make_throughput_grid
from dlperf_slurm.summarize import Summary, summarize

OOM = "out of memory: rank 3 on node2: OutOfMemoryError: tried | 2 GiB"


def make_summary(title="Small") -> Summary:
    """Everything that a cell can be: measured, partly measured, out of memory, not run, absent."""
    cases = [
        make_outcomes(make_planned_case("1n1g", repeats=7), [100.0] * 7),
        make_outcomes(make_planned_case("1n8g", repeats=3), [780.0, 760.0], ["not submitted"]),
        make_outcomes(make_planned_case("2n8g", repeats=1), [], [OOM]),
        make_outcomes(make_planned_case("4n8g", reason="the site has 2 nodes")),
        make_outcomes(make_planned_case("1n1g", compiler="torch.compile", repeats=1), [125.0]),
    ]
    return summarize(make_manifest(title=title), cases)


def print_on(width: int, summary: Summary, **options) -> str:
    console = Console(file=io.StringIO(), width=width, **options)
    print_summary(summary, console)
    return console.file.getvalue()


def read_csv(summary: Summary) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(load_format("csv").serialize(summary), newline="")))


def refuse_constant(text: str) -> float:
    raise AssertionError(f"{text} is not JSON")


def read_json(summary: Summary):
    return json.loads(load_format("json").serialize(summary), parse_constant=refuse_constant)


def make_small_summary(samples) -> Summary:
    return make_small_summary_of(make_planned_case(repeats=len(samples)), samples)


def make_small_summary_of(planned, samples) -> Summary:
    return summarize(make_manifest(), [make_outcomes(planned, samples)])


def make_grid(summary: Summary) -> Grid:
    """Of the first table of throughputs."""
    return make_throughput_grid(summary.throughput_tables[0])


def test_cell_has_the_median_with_its_interval():
    summary = make_small_summary([103.0, 101.0, 107.0, 102.0, 106.0, 104.0, 105.0])
    assert make_grid(summary).rows == (
        ("pytorch", "1n1g", "104.00 (101.00 to 107.00)", "1.00", "100.0 %", "2.55"),
    )


def test_cell_of_few_repeats_has_the_range_in_braces():
    summary = make_small_summary([103.0, 101.0, 107.0])
    assert make_grid(summary).rows[0][2] == "103.00 {101.00 to 107.00} [1]"


def test_cell_of_one_repeat_has_no_range():
    assert make_grid(make_small_summary([103.0])).rows[0][2] == "103.00 [1]"


def test_cell_of_a_partly_measured_case_says_how_many():
    # 770 is the median of 760 and 780; 770 / 100 = 7.7; 7.7 / 8 = 96.25 %
    assert make_grid(make_summary()).rows[1][3:6] == (
        "770.00 {760.00 to 780.00} n=2 of 3 [1][2]", "7.70", "96.2 %",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        (2, ("OOM [3]", "OOM", "OOM")),
        (3, ("not run [4]", "not run", "not run")),
    ],
)
def test_cell_without_a_figure_has_a_word_in_its_place(row, cells):
    assert make_grid(make_summary()).rows[row][3:6] == cells


def test_header_names_the_unit():
    assert make_grid(make_summary()).header[3] == "images/s"


def test_rows_name_framework_variant_and_topology_of_the_matrix_cases():
    assert [row[:3] for row in make_grid(make_summary()).rows] == [
        ("pytorch", "none", "1n1g"),
        ("pytorch", "none", "1n8g"),
        ("pytorch", "none", "2n8g"),
        ("pytorch", "none", "4n8g"),
        ("pytorch", "torch.compile", "1n1g"),
    ]


def test_achieved_work_is_that_of_the_definition_on_each_device():
    planned = make_planned_case("1n2g", repeats=1)
    cell = make_small_summary_of(planned, [150.0]).throughput_tables[0].columns[0].cells[0]
    # 8.18e9 FLOPs forward, three times that with the backward pass, on two devices
    assert cell.tflops_per_device == pytest.approx(150 * 3 * 8.18e9 / 2 / 1e12, rel=1e-3)


def test_no_cell_is_blank_or_not_a_number():
    cells = [cell for row in make_grid(make_summary()).rows for cell in row]
    assert [
        cell for cell in cells if not cell.strip() or "nan" in cell.lower() or "None" in cell
    ] == []


def test_every_mark_has_its_footnote():
    summary = make_summary()
    marks = {
        n for c in summary.throughput_tables[0].columns for cell in c.cells for n in cell.footnotes
    }
    assert marks == set(range(1, len(summary.footnotes) + 1))


def test_markdown_is_a_whole_document():
    planned = make_planned_case("1n1g", repeats=6), make_planned_case("1n2g", repeats=2)
    # 150 / 100 = 1.5; 1.5 / 2 = 75 %
    summary = summarize(
        make_manifest(),
        [make_outcomes(planned[0], [100.0] * 6), make_outcomes(planned[1], [150.0], [OOM])],
    )
    assert load_format("markdown").serialize(summary) == (
        "# Small\n"
        "\n"
        "run 20240501-120000-small-tiny-abcd, site tiny, 2024-05-01T12:00:00Z, dlperf_slurm 0.1.0 "
        "abc1234, 7 of 8 repeats measured\n"
        "\n"
        "Throughput: median over independent repeats of global batch size x measured steps / "
        "window of the slowest rank; in parentheses its 95 % interval. TFLOP/s: matrix products "
        "and convolutions of the model's definition, forward and backward, over the same time.\n"
        "\n"
        "## resnet50: fp32, batch size 8 per device\n"
        "\n"
        "| framework | topology | images/s | speedup | efficiency | TFLOP/s per device |\n"
        "| --- | --- | ---: | ---: | ---: | ---: |\n"
        "| pytorch | 1n1g | 100.00 (100.00 to 100.00) | 1.00 | 100.0 % | 2.45 |\n"
        "| pytorch | 1n2g | 150.00 n=1 of 2 [1][2] | 1.50 | 75.0 % | 1.84 |\n"
        "\n"
        "speedup and weak-scaling efficiency against 1n1g.\n"
        "\n"
        f"[1] pytorch-resnet50-1n2g-bs8-fp32 repeat 2: {OOM}  \n"
        "[2] a 95 % interval takes 6 repeats; in braces the smallest and the largest value  \n"
    )


def test_markdown_rows_have_a_cell_for_each_column():
    lines = load_format("markdown").serialize(make_small_summary([1.0])).splitlines()
    assert {line.count("|") for line in lines if line.startswith("|")} == {7}


def test_markdown_escapes_a_pipe_in_a_cell():
    planned = make_planned_case(framework="a|b", repeats=1)
    summary = summarize(make_manifest(), [make_outcomes(planned, [100.0])])
    assert "| a\\|b | 1n1g | 100.00" in load_format("markdown").serialize(summary)


def test_csv_has_a_line_for_each_case_of_the_tables():
    lines = read_csv(make_summary())
    assert [(line["compiler"], line["topology"]) for line in lines] == [
        (compiler, topology)
        for compiler in ("none", "torch.compile")
        for topology in ("1n1g", "1n8g", "2n8g", "4n8g")
    ]


def test_csv_has_the_figures_in_full():
    line = read_csv(make_summary())[1]
    figures = ("samples_per_s", "smallest", "largest", "speedup", "weak_scaling_efficiency")
    assert [float(line[name]) for name in figures] == pytest.approx(
        [770.0, 760.0, 780.0, 7.7, 0.9625]
    )


def test_csv_says_why_a_figure_is_not_there():
    lines = read_csv(make_summary())
    assert [(x["samples_per_s"], x["problem"]) for x in lines[2:4]] == [
        ("", "OOM"), ("", "not run"),
    ]  # fmt: skip


def test_csv_has_a_figure_or_a_problem_on_each_line():
    assert [
        x for x in read_csv(make_summary()) if not x["samples_per_s"] and not x["problem"]
    ] == []


def test_csv_spells_its_footnotes_out():
    line = read_csv(make_summary())[2]
    assert line["footnotes"] == f"pytorch-resnet50-2n8g-bs8-fp32 repeat 1: {OOM}"


def test_json_has_no_figure_that_is_not_a_number():
    assert read_json(make_summary())["schema_version"] == 1


def test_json_has_the_figures_in_full():
    cell = read_json(make_summary())["throughput_tables"][0]["columns"][0]["cells"][1]
    assert (cell["median"], cell["speedup"], cell["interval"]) == (
        pytest.approx(770.0), pytest.approx(7.7), None,
    )  # fmt: skip


def test_json_has_topologies_as_text():
    assert read_json(make_summary())["throughput_tables"][0]["topologies"] == [
        "1n1g",
        "1n8g",
        "2n8g",
        "4n8g",
    ]


def test_json_has_the_manifest():
    assert read_json(make_summary())["manifest"]["run_id"] == "20240501-120000-small-tiny-abcd"


@pytest.mark.parametrize("name", FILE_FORMATS)
def test_report_is_the_same_each_time(name):
    assert load_format(name).serialize(make_summary()) == load_format(name).serialize(
        make_summary()
    )


def test_terminal_keeps_to_80_columns():
    lines = print_on(80, make_summary()).splitlines()
    assert max(map(len, lines)) <= 80


def test_terminal_of_80_columns_cuts_nothing_off():
    assert "…" not in print_on(80, make_summary())


def test_terminal_shows_each_footnote():
    text = print_on(200, make_summary())
    notes = enumerate(make_summary().footnotes, start=1)
    assert [note for n, note in notes if f"[{n}] {note}" not in text] == []


def test_terminal_has_colours():
    assert "\x1b[" in print_on(80, make_summary(), force_terminal=True, color_system="standard")


def test_piped_output_has_no_colours():
    assert "\x1b" not in print_on(80, make_summary())


@pytest.mark.parametrize("text", ["[bold]x[/bold]", "[/]", "[1]", ":smile:"])
def test_text_of_the_user_is_not_taken_for_markup(text):
    assert print_on(80, make_summary(title=text)).startswith(f"{text}\n")


def test_long_word_in_a_table_is_folded():
    console = Console(file=io.StringIO(), width=40)
    print_table(["key", "value"], [["k", "x" * 100]], console, text_columns=None)
    assert console.file.getvalue().count("x") == 100
