"""Reports: the same summary on a terminal, as Markdown, CSV and JSON, with no hole in it."""

import io
import json
import re

import pytest
from builders import make_manifest, make_outcomes, make_planned_case, read_csv
from report_values import summarize, write_report, write_rows

from dlperf_slurm.reports.cells import Cell
from dlperf_slurm.reports.formats.markdown import escape_markdown
from dlperf_slurm.reports.plain_console import PlainConsole
from dlperf_slurm.reports.summarize import Summary
from dlperf_slurm.reports.terminal import print_table, print_whole_report
from dlperf_slurm.stats.median import Interval

pytestmark = pytest.mark.not_in_check

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
    console = PlainConsole(io.StringIO(), width=width, **options)
    print_whole_report(summary, console)
    return console.file.getvalue()


def refuse_constant(text: str) -> float:
    raise AssertionError(f"{text} is not JSON")


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        # 770 is the median of 760 and 780; 770 / 100 = 7.7; 7.7 / 8 = 96.25 %
        (1, ("770 {760 to 780} n=2 of 3 [1][2]", "7.70", "96.2 %")),
        (2, ("OOM [3]", "OOM", "OOM")),
        (3, ("not run [4]", "not run", "not run")),
    ],
)
def test_cell_says_how_many_repeats_or_what_is_in_its_place(row, cells):
    assert write_rows(make_summary().tables[0])[row][3:6] == cells


def test_markdown_is_a_whole_document():
    planned = make_planned_case("1n1g", repeats=6), make_planned_case("1n2g", repeats=2)
    # 150 / 100 = 1.5; 1.5 / 2 = 75 %
    summary = summarize(
        make_manifest(),
        [make_outcomes(planned[0], [100.0] * 6), make_outcomes(planned[1], [150.0], [OOM])],
    )
    assert write_report("markdown", summary) == (
        "# Small\n"
        "\n"
        "ResNet-50, up to 2 ranks on cpu, 1 node, site tiny, 2024-05-01; run "
        "20240501-120000-small-tiny-abcd, dlperf_slurm 0.1.0 abc1234, 7 of 8 repeats measured\n"
        "\n"
        "Throughput: global batch size x number of measured steps, divided by the time of the "
        "slowest rank for these steps; median over independent repeats, with its 95 % confidence "
        "interval in parentheses. Speedup and efficiency: ratios of these medians, with 95 % "
        "confidence intervals in parentheses. The intervals of one scaling curve have a joint "
        "confidence of 95 %; any other interval has an individual confidence of 95 %. TFLOP/s: "
        "operations in the "
        "matrix products and convolutions of the model's definition, forward and backward, "
        "divided by the time of the slowest rank. The "
        "repeats of a case ran close in time, in one array job: "
        "intervals cover the variation within this job, not between nodes or days (see "
        "protocol.blocks).\n"
        "\n"
        "## ResNet-50: fp32, batch size 8 per device; up to 2 ranks on cpu, 1 node, 2024-05-01\n"
        "\n"
        "| framework | topology | images/s | speedup | efficiency | TFLOP/s per device |\n"
        "| --- | --- | ---: | ---: | ---: | ---: |\n"
        "| pytorch | 1n1g | 100.00 (100.00 to 100.00) | 1.00 | 100.0 % | 2.45 (2.45 to 2.45) |\n"
        "| pytorch | 1n2g | 150.00 n=1 of 2 [1][2] | 1.50 | 75.0 % | 1.84 |\n"
        "\n"
        "speedup and weak-scaling efficiency against 1n1g.\n"
        "\n"
        "## ResNet-50: memory and energy; up to 2 ranks on cpu, 1 node, 2024-05-01\n"
        "\n"
        "| case | peak MiB |\n"
        "| --- | ---: |\n"
        "| pytorch-resnet50-1n1g-bs8-fp32 | 1 |\n"
        "| pytorch-resnet50-1n2g-bs8-fp32 | 1 |\n"
        "\n"
        "peak memory: of the rank that used most. On GPUs it is the memory allocated by the "
        "framework's allocator; for mxnet and oneflow, the memory of the process on the device at "
        "the end. On CPUs it is the memory of the process. Utilization, power and clocks: over "
        "all devices (on CPUs: over the CPUs of the hosts) during the measured steps, medians "
        "over repeats.\n"
        "\n"
        f"[1] pytorch-resnet50-1n2g-bs8-fp32 repeat 2: {OOM}  \n"
        "[2] a 95 % interval needs 6 repeats; braces show the smallest and the largest value "
        "instead  \n"
    )


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("`x` ~y~ $z$ ^n^ *i*", r"\`x\` \~y\~ \$z\$ \^n\^ \*i\*"),
        ("C:\\node &lt; a & b", r"C:\\node \&lt; a & b"),
        ("[a](b) expected [8], got [2]", r"[a\](b) expected [8], got [2]"),
        ("parameter_server 1.00 {0.98 to 1.02} [1]", "parameter_server 1.00 {0.98 to 1.02} [1]"),
        ("run #", r"run \#"),
        ("a\n# b", "a # b"),
    ],
)
def test_markdown_has_texts_as_texts(text, markdown):
    assert escape_markdown(text) == markdown


def test_markdown_escapes_all_that_users_and_errors_say():
    text = "<b>*x*</b>"
    planned = make_planned_case(framework=text, case_id=text, repeats=2)
    cases = [make_outcomes(planned, [100.0], [f"failed: {text}"])]
    document = write_report("markdown", summarize(make_manifest(title=text), cases))
    assert document.startswith("# \\<b>\\*x\\*\\</b>\n")
    assert "failed: \\<b>" in document
    assert re.search(r"(?<!\\)(<b>|\*)", document) is None


def test_csv_has_the_figures_in_full():
    _, line, oom, *_ = read_csv(make_summary())
    assert oom["notes"] == f"pytorch-resnet50-2n8g-bs8-fp32 repeat 1: {OOM}"
    figures = ("samples_per_s", "smallest", "largest", "speedup", "weak_scaling_efficiency")
    assert [float(line[name]) for name in figures] == pytest.approx(
        [770.0, 760.0, 780.0, 7.7, 0.9625]
    )


def test_json_has_the_figures_in_full():
    data = json.loads(write_report("json", make_summary()), parse_constant=refuse_constant)
    assert (data["schema_version"], data["manifest"]["run_id"]) == (1, make_manifest().run_id)
    case = data["cases"][1]
    assert (case["samples_per_s"], case["speedup"]) == pytest.approx((770.0, 7.7))
    assert case["interval_low"] is None
    cell = data["tables"][0]["rows"][1][3]
    assert (cell["value"], cell["text"]) == (pytest.approx(770.0), "770")
    assert (cell["low"], cell["high"]) == pytest.approx((760.0, 780.0))


@pytest.mark.parametrize("name", ["markdown", "csv", "json", "latex"])
def test_report_is_the_same_each_time(name):
    assert write_report(name, make_summary()) == write_report(name, make_summary())


def test_terminal_shows_each_footnote():
    text = print_on(200, make_summary())
    notes = enumerate(make_summary().footnotes, start=1)
    assert [note for n, note in notes if f"[{n}] {note}" not in text] == []


def test_terminal_has_colours_and_a_pipe_has_none():
    assert "\x1b[" in print_on(80, make_summary(), is_terminal=True)
    assert "\x1b" not in print_on(80, make_summary())


@pytest.mark.parametrize("text", ["[bold]x[/bold]", "[/]", "[1]", ":smile:"])
def test_text_of_the_user_is_not_taken_for_markup(text):
    assert print_on(80, make_summary(title=text)).startswith(f"{text}\n")


def test_long_word_in_a_table_is_folded():
    console = PlainConsole(io.StringIO(), width=40)
    print_table(["key", "value"], [["k", "x" * 100]], console, text_columns=None)
    assert console.file.getvalue().count("x") == 100


def print_table_on(width):
    """Return the printed lines, without alignment."""
    console = PlainConsole(io.StringIO(), width=width)
    throughput = Cell(1234.56, interval=Interval(1234.12, 1235.01), repeats=(6, 7), notes=(1,))
    rows = [["pytorch", "1n1g", throughput, Cell(1.9, interval=Interval(1.78, 2.01))]]
    print_table(["framework", "topology", "images/s", "speedup over fp32"], rows, console, "t", 2)
    lines = console.file.getvalue().splitlines()
    return [" ".join(line.split()) for line in lines if line.strip(" ─")]


def test_table_with_room_has_intervals_beside_their_figures():
    assert print_table_on(100)[2:] == [
        "pytorch 1n1g 1234.56 (1234.12 to 1235.01) n=6 of 7 [1] 1.90 (1.78 to 2.01)"
    ]


def test_narrow_table_leaves_out_columns_from_the_right_and_names_them():
    assert print_table_on(70) == [
        "t",
        "framework topology images/s",
        "pytorch 1n1g 1234.56 (1234.12 to 1235.01) n=6 of 7 [1]",
        "columns left out: speedup over fp32",
    ]


@pytest.mark.parametrize("width", [20, 60, 200])
def test_no_line_is_longer_than_the_terminal_and_no_figure_is_cut(width):
    text = print_on(width, make_summary())
    assert max(map(len, text.splitlines())) <= width
    assert {"{760", "780}", "770"} <= set(text.split())
    assert "…" not in text
