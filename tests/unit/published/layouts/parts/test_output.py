"""A document in a layout: as Markdown, and on terminals of any width."""

import io

import pytest
from published_documents import lay_out_run, make_training

from dlperf_slurm.published.layouts import list_layouts
from dlperf_slurm.published.layouts.parts.document import Document
from dlperf_slurm.published.layouts.parts.output import print_document, serialize, split_table
from dlperf_slurm.reports.cells import Cell, Table, make_table
from dlperf_slurm.reports.plain_console import PlainConsole

HOSTILE = "a|b [bold]c[/bold] $(d)"


def make_wide_table(columns: int = 8) -> Table:
    """Make a table with a text column, and figures of 9 characters under two-word headers."""
    figures = [f"{number}12345.67" for number in range(columns)]
    header = ("Framework", *(f"Throughput column{number}" for number in range(columns)))
    return make_table("wide", header, [("pytorch", *figures)], text_columns=1, caption="caption")


def make_document(table: Table) -> Document:
    document = Document([table], notes=["nothing is missing"])
    document.number([HOSTILE])
    return document


def print_on(width: int, document: Document) -> list[str]:
    console = PlainConsole(io.StringIO(), width=width)
    print_document(document, HOSTILE, "run x", console)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [30, 40, 80, 120, 400])
def test_no_figure_is_folded_on_any_terminal(width):
    figures = {f"{number}12345.67" for number in range(8)}
    words = {
        word for line in print_on(width, make_document(make_wide_table())) for word in line.split()
    }
    assert figures <= words


@pytest.mark.parametrize(("width", "parts"), [(400, 1), (120, 1), (80, 2), (40, 4), (30, 8)])
def test_table_that_is_too_wide_comes_in_parts_that_begin_with_the_words(width, parts):
    found = list(split_table(make_wide_table(), width))
    assert len(found) == parts
    assert {(part.header[0], part.rows[0][0]) for part in found} == {("Framework", Cell("pytorch"))}


def test_table_of_words_is_not_repeated_in_parts():
    assert len(list(split_table(make_wide_table(), 20))) == 1


def test_headers_are_wrapped_between_words_only():
    (part, *_) = split_table(make_wide_table(), 40)
    assert part.header[1] == "Throughput\ncolumn0"


def test_texts_are_shown_as_they_are():
    lines = print_on(120, make_document(make_wide_table()))
    assert lines[0] == HOSTILE
    assert f"[1]: {HOSTILE}" in lines


def test_markdown_cell_keeps_to_its_row():
    table = make_table(
        title="t",
        header=("a|b", "c\nd"),
        rows=(("x|y", "1\n2"),),
        text_columns=1,
        caption="caption",
    )
    assert serialize(make_document(table), "title", "run x") == (
        "# title\n\nrun x\n\n## t\n\n"
        "| a\\|b | c<br>d |\n| --- | ---: |\n| x\\|y | 1<br>2 |\n\n"
        "caption.\n\n\\[1]: a|b [bold]c[/bold] \\$(d)  \n\nNote: nothing is missing.\n"
    )


@pytest.mark.parametrize("layout", list_layouts())
def test_cases_of_strong_scaling_are_left_out_with_a_note(layout):
    weak = [make_training("1n1g", rate=100.0), make_training("1n2g", rate=190.0)]
    strong = make_training("1n2g", rate=150.0, batch_size_per_device=4, global_batch_size=8)
    plain, noted = lay_out_run(layout, *weak), lay_out_run(layout, *weak, strong)
    assert noted.tables == plain.tables
    assert [note for note in noted.notes if "global_batch_size" in note] == [noted.notes[-1]]
    assert noted.notes[:-1] == plain.notes
