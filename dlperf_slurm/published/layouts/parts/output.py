"""A document in a layout -> Markdown, or tables on a terminal, split where they are too wide."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dlperf_slurm.files.writing import write_file
from dlperf_slurm.plain_text import count_things
from dlperf_slurm.published.layouts import load_layout
from dlperf_slurm.published.layouts.parts.document import Document
from dlperf_slurm.published.layouts.parts.figures import make_run_figures
from dlperf_slurm.reports.cells import Table
from dlperf_slurm.reports.formats import Report
from dlperf_slurm.reports.formats.latex import write_tables
from dlperf_slurm.reports.formats.markdown import escape_markdown, list_blocks
from dlperf_slurm.reports.plain_console import PlainConsole, Text
from dlperf_slurm.reports.terminal import list_columns, print_table, sum_widths
from dlperf_slurm.results.cases import Results


def write_layout(report: Report, layout: str, folder: Path) -> Document:
    """Write tables as report-LAYOUT.md and .tex to the run's report folder; return the document."""
    summary = report.summary
    document = lay_out_run(layout, summary.results)
    document.tables += summary.against
    head = (summary.manifest.title, summary.description)
    texts = {
        "md": serialize(document, *head),
        "tex": write_tables(document.tables, document.footnotes, [*head, *document.notes]),
    }
    for suffix, text in texts.items():
        path = folder / f"report-{layout}{report.variant}.{suffix}"
        write_file(path, text.encode(), root=folder.parent)
    return document


def lay_out_run(layout: str, results: Results) -> Document:
    """Make the tables of a run in a published layout, with a note if it has none for some cases."""
    document = load_layout(layout).lay_out(make_run_figures(results))
    left_out = int((results.cases.global_batch_size > 0).sum())
    if left_out:
        document.note(
            f"left out: {count_things(left_out, 'case')} with a fixed global_batch_size (strong "
            "scaling), for which this layout has no table; `report` without --layout has them"
        )
    return document


def serialize(document: Document, title: str, description: str) -> str:
    """Format a document as Markdown: tables with captions, then footnotes, then notes."""
    blocks = [f"# {escape_markdown(title)}", escape_markdown(description)]
    blocks += list_blocks(document.tables)
    if document.footnotes:
        # without the backslash Markdown would read [1]: and a single word as a link
        blocks.append("\n".join(f"\\{escape_markdown(line)}  " for line in _number(document)))
    blocks += [f"Note: {escape_markdown(note)}." for note in document.notes]
    return "\n\n".join(blocks) + "\n"


def print_document(document: Document, title: str, description: str, console: PlainConsole) -> None:
    """Print a document on a terminal: tables with captions, then footnotes, then notes."""
    console.print(Text(title, style="bold"))
    console.print(Text(description))
    for table in document.tables:
        console.print()
        # not the table's own title, which would be wrapped to the width of a narrow table
        console.print(Text(table.title, style="bold"))
        for part in split_table(table, console.width):
            print_table(part.header, part.rows, console, text_columns=table.text_columns)
        console.print(Text(table.caption, style="dim"))
    if document.footnotes:
        console.print()
    for line in _number(document):
        console.print(Text(line))
    for note in document.notes:
        console.print(Text(f"note: {note}", style="yellow"))


def _number(document: Document) -> list[str]:
    """Format the footnotes as DLPerf does below its tables: "[1]: ..."."""
    return [f"[{number}]: {text}" for number, text in enumerate(document.footnotes, start=1)]


def split_table(table: Table, width: int) -> Iterator[Table]:
    """Yield parts of a table whose columns fit into `width` characters, with wrapped headers.

    Each part repeats the text columns and has at least one column of figures. A table that fits, or
    whose text columns take most of the width, is yielded whole.
    """
    columns = list_columns(table.header, table.rows, table.text_columns)
    words = sum_widths(column.width for column in columns[: table.text_columns])
    if words > width / 2 or sum_widths(column.width for column in columns) <= width:
        yield table
        return
    wrapped = [column.wrap_head() for column in columns]
    texts, parts = wrapped[: table.text_columns], [wrapped[: table.text_columns]]
    for column in wrapped[table.text_columns :]:
        if sum_widths(one.width for one in (*parts[-1], column)) > width and parts[-1] != texts:
            parts.append([*texts])
        parts[-1].append(column)
    for part in parts:
        rows = tuple(tuple(row[column.number] for column in part) for row in table.rows)
        yield replace(table, header=tuple(column.head for column in part), rows=rows)
