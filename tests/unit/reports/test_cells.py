"""Cells: what is printed of a value, and that no format takes what it prints for anything else."""

import io
import re

import pytest
from report_values import HOSTILE, list_report_files

from dlperf_slurm.published.audit.tables import find_tables
from dlperf_slurm.reports import terminal
from dlperf_slurm.reports.cells import Cell, Table, join_cells, make_table
from dlperf_slurm.reports.formats import latex, markdown
from dlperf_slurm.reports.formats.html import load_template
from dlperf_slurm.reports.formats.page.tables import make_html_table
from dlperf_slurm.reports.plain_console import PlainConsole
from dlperf_slurm.results.number_formats import (
    COUNT,
    MILLISECONDS,
    RATIO,
    SHARE,
    DurationFormat,
    ScaledFormat,
)
from dlperf_slurm.stats.median import Interval

INTERVAL, RANGE = Interval(95.625, 97.788), Interval(760, 780)


@pytest.mark.parametrize(
    ("cell", "text", "spread", "marks"),
    [
        (Cell(95.98, interval=INTERVAL, notes=(3, 1)), "96.0", "(95.6 to 97.8)", " [1][3]"),
        (Cell(0.7777, SHARE, Interval(0.701, 0.802)), "77.8 %", "(70.1 to 80.2)", ""),
        (Cell(770.0, range=RANGE, repeats=(2, 3)), "770", "{760 to 780} n=2 of 3", ""),
        (Cell(770.0, repeats=(1, 3), notes=(2,)), "770.00", "n=1 of 3", " [2]"),
        (Cell(None, problem="not run", notes=(2,)), "not run", "", " [2]"),
        (Cell(0.0123456, MILLISECONDS), "12.35", "", ""),
        (Cell(2, ScaledFormat(".0f", unit=" of 3")), "2 of 3", "", ""),
        (Cell("word", notes=(2, 1, 2)), "word", "", " [1][2]"),
        (join_cells([Cell(16, COUNT), Cell(32, COUNT)], " and "), "16 and 32", "", ""),
    ],
)
def test_cell_is_printed_with_how_sure_it_is_and_its_marks(cell, text, spread, marks):
    assert (cell.text, cell.spread) == (text, spread)
    assert cell.write() == f"{text} {spread}".rstrip() + marks


@pytest.mark.parametrize(
    ("value", "low", "high", "written"),
    [
        (24.90, 15.57, 39.24, "25 (16 to 39)"),
        (2269.31, 1469.97, 3068.65, "2270 (1470 to 3070)"),
        (24.90, 24.31, 25.57, "24.90 (24.31 to 25.57)"),
        (24.90, 24.896, 24.906, "24.90 (24.90 to 24.91)"),
        (123456.7, 103456.7, 143456.7, "123000 (103000 to 143000)"),
        # no spread says nothing of the digits
        (24.90, 24.90, 24.90, "24.90 (24.90 to 24.90)"),
    ],
)
def test_figure_has_no_more_digits_than_its_interval_knows(value, low, high, written):
    assert Cell(value, interval=Interval(low, high)).write() == written
    in_braces = Cell(value, range=Interval(low, high)).write()
    assert in_braces == written.replace("(", "{").replace(")", "}")


def test_interval_that_is_not_shown_limits_digits_too():
    cell = Cell(0.0249, MILLISECONDS, Interval(0.01557, 0.03924), hides_bounds=True)
    assert cell.write() == "25"
    assert cell.figure == 0.0249


@pytest.mark.parametrize(
    ("cell", "figure"),
    [
        (Cell(0.7777, SHARE, Interval(0.701, 0.802)), 0.7777),
        (Cell(723.4, DurationFormat()), 723.4),
        (Cell(None, problem="3 of 4 failed"), None),
        # a word, although it begins with digits
        (Cell("64 -> 16"), None),
        (join_cells([Cell(4.17), Cell(5.83)], " / "), 4.17),
        (join_cells([Cell(None, problem="failed"), Cell(5.83)], " / "), None),
    ],
)
def test_column_is_sorted_by_the_value_and_not_by_what_is_printed(cell, figure):
    assert cell.figure == figure


def test_narrow_cell_has_its_bounds_on_a_line_of_their_own():
    cell = Cell(1.5, RATIO, Interval(1.0, 2.0), repeats=(6, 7), notes=(1,))
    assert cell.write("\n") == "1.50\n(1.00 to 2.00)\nn=6 of 7 [1]"
    assert Cell(1.5, repeats=(6, 7), notes=(1,)).write("\n") == "1.50 n=6 of 7 [1]"


def test_several_cells_in_one_have_each_its_bounds_on_a_line():
    first, second = Cell(4.17, interval=Interval(4.15, 4.18)), Cell(5.83)
    assert join_cells([first, second], " / ", [2]).write() == "4.17 (4.15 to 4.18) / 5.83 [2]"
    assert join_cells([first, second], " / ").write("\n") == "4.17\n(4.15 to 4.18)\n/ 5.83"
    assert join_cells([second, first], " / ", [2]).write("\n") == "5.83 / 4.17\n(4.15 to 4.18)\n[2]"


HOSTILE_WORDS = (
    *("<b>x</b>", "a|b", "a & b &amp;", "C:\\node", "a_b _c_", "[1]", "1.0 [1](x)", "(1 to 2)"),
    *("{1.00 to 2.00}", "12 min 3 s", "a\nb", "$x$ #1 %", "{{ x }}", HOSTILE),
)


def make_hostile_table(word: str) -> Table:
    """Make a table with this word as title, heading, cell, problem and caption."""
    rows = [[word, Cell(word, notes=(1,)), Cell(None, problem=word), Cell(2, COUNT)]]
    return make_table(word, ("case", word, "figure", "count"), rows, 2, word)


@pytest.mark.parametrize("word", HOSTILE_WORDS)
def test_hostile_word_in_markdown_is_read_as_it_was_written(word):
    (table,) = find_tables(markdown.make_table(make_hostile_table(word)))
    ((_, row),) = table.rows
    text = word.replace("\n", "<br>")
    assert table.header[1] == text
    assert row == (text, f"{text} [1]", text, "2")


@pytest.mark.parametrize("word", HOSTILE_WORDS)
def test_hostile_word_in_html_is_text_and_nothing_else(word):
    page_table = make_html_table(make_hostile_table(word), "t", ("note",))
    html = load_template("table.html.j2").module.show_table(page_table)
    # words of the tool's own are explained, also in the midst of others
    shown = re.sub(r"<[^>]*>", "\n", re.sub(r"</?abbr[^>]*>", "", html))
    escaped = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&#34;"}
    text = "".join(escaped.get(character, character) for character in word)
    # heading of a column, of the row, the word, the problem; the caption begins with a capital
    assert shown.count(text) >= 4
    assert html.count("<sup>") == 1
    assert re.findall('data-value="(.*?)"', html) == ["", "2"]


@pytest.mark.parametrize("word", HOSTILE_WORDS)
def test_hostile_word_in_latex_is_text_and_nothing_else(word):
    tex = latex.make_table(make_hostile_table(word), "tab:1", {1: "note"})
    text = latex.escape_latex(word)
    line = rf"{{{text}}} & {{{text}\textsuperscript{{1}}}} & {{{text}}} & 2 \\"
    assert line in tex.replace(r"\allowbreak{}", "").splitlines()
    assert r"\par\textsuperscript{1} note" in tex


@pytest.mark.parametrize("word", HOSTILE_WORDS)
def test_hostile_word_on_a_terminal_is_shown_as_it_is(word):
    console = PlainConsole(io.StringIO(), width=2000)
    terminal.show_table(make_hostile_table(word), console)
    text = console.file.getvalue()
    assert all(text.count(line) >= 5 for line in word.split("\n"))


def test_no_two_formats_write_the_same_file():
    names = list_report_files()
    assert {"report.html", "report.md", "report.csv", "report.json", "report.tex"} <= set(names)
    assert {"cases.parquet", "repeats.parquet"} <= set(names)
    assert len(set(names)) == len(names)
