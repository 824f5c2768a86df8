"""Tables on a terminal of whatever width: nothing is cut, and nothing wider than it."""

import io

import pytest

from dlperf_slurm.cli.logs import _find_common_folder
from dlperf_slurm.reports.plain_console import PlainConsole
from dlperf_slurm.reports.terminal import print_table

HEADER = ["case", "quantity", "A", "B", "speed B / A", "95 % interval", "verdict"]
NAMES = [f"pytorch-resnet50-1n{number}g-bs8-amp-bf16-channels-last" for number in range(1, 4)]
ROWS = [[name, "images/s", "27", "27", "1.00", "0.42 to 2.36", "undecided [1]"] for name in NAMES]


def print_at(width, header=HEADER, rows=ROWS):
    stream = io.StringIO()
    print_table(header, rows, PlainConsole(file=stream, width=width), "B against A", 2)
    return stream.getvalue()


@pytest.mark.parametrize("width", [30, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(width):
    assert max(map(len, print_at(width).splitlines())) <= width


def test_wide_terminal_has_each_case_in_one_line():
    assert sum(name in line for line in print_at(200).splitlines() for name in NAMES) == 3


def test_narrow_terminal_has_a_table_with_names_broken_behind_hyphens():
    lines = print_at(80).splitlines()
    assert any(line.split()[:2] == ["case", "quantity"] for line in lines)
    firsts = [line.split()[0] for line in lines if line.strip().startswith("pytorch")]
    assert len(firsts) == 3
    assert all(first.endswith("-") for first in firsts)
    # all of a name is there
    assert "".join(line.split(" ")[1] for line in lines if line[1:2].strip()).count(NAMES[1]) == 1


def test_terminal_too_narrow_for_a_table_has_a_list_with_whole_names():
    printed = print_at(40)
    assert "verdict: undecided [1]" in printed
    assert printed.replace("\n", "").count(NAMES[0]) == 1


def test_figures_and_words_are_not_broken():
    rows = [[name, "not - a - name " * 3, *row[2:]] for name, row in zip(NAMES, ROWS)]
    assert "not - a - name" in " ".join(print_at(80, rows=rows).split())


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
