"""Tables on a terminal of whatever width: nothing is cut, and nothing wider than it."""

import io

import pytest
from report_values import make_measured, rename, summarize_cases

from dlperf_slurm.cli.logs import _find_common_folder
from dlperf_slurm.reports.cells import Cell
from dlperf_slurm.reports.plain_console import PlainConsole
from dlperf_slurm.reports.terminal import print_summary, print_table

HEADER = ["case", "quantity", "A", "B", "speed B / A", "95 % interval", "verdict"]
NAMES = [f"pytorch-resnet50-1n{number}g-bs8-amp-bf16-channels-last" for number in range(1, 4)]
ROWS = [[name, "images/s", "27", "27", "1.00", "0.42 to 2.36", "undecided [1]"] for name in NAMES]


def print_at(width, header=HEADER, rows=ROWS):
    stream = io.StringIO()
    print_table(header, rows, PlainConsole(stream, width), "B against A", 2)
    return stream.getvalue()


@pytest.mark.parametrize("width", range(24, 60))
def test_figures_of_a_sentence_are_not_broken(width):
    stream = io.StringIO()
    text = "the step times of two ranks vary by 5 %, and in all others by 21 to 34 % (2.5 to 3.75)"
    PlainConsole(stream, width).print(text)
    printed = stream.getvalue()
    assert printed.split() == text.split()
    assert all(figure in printed for figure in ("5 %", "21 to 34 %", "(2.5 to 3.75)"))


def test_narrow_terminal_has_a_table_with_names_broken_behind_hyphens():
    lines = print_at(60).splitlines()
    assert any(line.split()[:2] == ["case", "quantity"] for line in lines)
    firsts = [line.split()[0] for line in lines if line.strip().startswith("pytorch")]
    assert len(firsts) == 3
    assert all(first.endswith("-") for first in firsts)
    # all of a name is there
    assert "".join(line.split(" ")[1] for line in lines if line[1:2].strip()).count(NAMES[1]) == 1


def test_run_without_a_result_says_why():
    failed = [make_measured("jax", topology, [], ["failed: x y"]) for topology in ("1n1g", "1n2g")]
    stream = io.StringIO()
    print_summary(summarize_cases(failed), PlainConsole(file=stream, width=80))
    text = " ".join(stream.getvalue().split())
    assert "failed: x y" in text
    assert "not measured: 1n1g [1], 1n2g [1]" in text
    # no table of frameworks without figures
    assert "─" not in text


def test_words_in_a_column_of_figures_are_wrapped():
    stream = io.StringIO()
    verdict = Cell(
        "slower, as torch 2.1 became 2.2 and the driver 550 became 560, and more changed"
    )
    rows = [["20261126", Cell(1.0), verdict]]
    print_table(["run", "images/s", "verdict"], rows, PlainConsole(file=stream, width=60))
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= 60
    assert "left out" not in text
    assert {*verdict.text.split()} <= {*text.split()}


def print_run(width, frameworks, precisions, topologies):
    summary = summarize_cases(
        [
            rename(make_measured(framework, topology, [1.0 + place]), precision=precision)
            for framework in frameworks
            for place, precision in enumerate(precisions)
            for topology in topologies
        ]
    )
    stream = io.StringIO()
    print_summary(summary, PlainConsole(file=stream, width=width))
    return summary, stream.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 200])
def test_four_and_48_cases_are_summed_up_on_one_screen(width):
    _, four = print_run(width, ["jax"], ["fp32", "amp-bf16"], ["1n1g", "1n2g"])
    frameworks = ["jax", "pytorch", "mxnet", "paddle"]
    precisions = ["amp-bf16", "amp-fp16", "tf32", "fp32"]
    summary, many = print_run(width, frameworks, precisions, ["1n1g", "1n2g", "2n2g"])
    assert len(summary.results.cases) == 48
    assert len(four) <= 30
    assert len(many) <= 40
    assert max(map(len, [*four, *many])) <= width
    assert "the fastest 10 of 16 rows" in many
    # the fastest precision of each framework is there
    fastest = [line.split()[:2] for line in many if " amp-bf16 " in line and line[0] == " "]
    assert [*map(tuple, fastest)] == [(name, "amp-bf16") for name in frameworks]
    assert summary.findings[0].text[:40] in " ".join(many)


@pytest.mark.parametrize(
    ("paths", "folder"),
    [
        (["a/b/c.log", "a/b/d.log"], "a/b/"),
        (["a/bc/x.log", "a/bd/x.log"], "a/"),
        (["/a/x.log", "b/x.log"], ""),
        (["a/x.log"], ""),
    ],
)
def test_folder_that_all_logs_lie_below(paths, folder):
    assert _find_common_folder(paths) == folder


def test_columns_to_omit_first_make_room_for_the_others():
    stream = io.StringIO()
    console = PlainConsole(file=stream, width=80)
    print_table(HEADER, ROWS, console, text_columns=2, omit_first=(2, 3, 5))
    assert stream.getvalue().count("undecided [1]") == 3
