"""Report -> Markdown."""

import re
from collections.abc import Iterable, Iterator

from dlperf_slurm.reports.cells import Table
from dlperf_slurm.reports.formats import Report
from dlperf_slurm.reports.summarize import tabulate_run

FILE_NAME = "report.md"
SHOWS_PLOTS = False

# what CommonMark, GitHub or pandoc would not show as it is: underscores but those within a word,
# brackets before an address, entities, and what closes a heading
_SPECIAL = re.compile(r"[\\`*<~^$]|(?<![^\W_])_|_(?![^\W_])|\](?=[({])|&(?=#?\w+;)|#(?=#*$)")


def serialize(report: Report) -> dict[str, bytes]:
    """A document that GitHub and pandoc lay out; no text in it is taken for Markdown."""
    summary = report.summary
    title, run = escape_markdown(summary.manifest.title), escape_markdown(summary.description)
    banner = [f"**{escape_markdown(summary.banner)}**"] if summary.banner else []
    blocks = [f"# {title}", run, *banner, summary.method, *list_blocks(tabulate_run(summary))]
    if summary.footnotes:
        notes = enumerate(map(escape_markdown, summary.footnotes), start=1)
        blocks.append("\n".join(f"[{number}] {text}  " for number, text in notes))
    return {FILE_NAME: ("\n\n".join(blocks) + "\n").encode()}


def list_blocks(tables: Iterable[Table]) -> Iterator[str]:
    """The title of each table, the table and its caption, one after the other."""
    for table in tables:
        yield f"## {escape_markdown(table.title)}"
        yield make_table(table)
        yield f"{escape_markdown(table.caption)}."


def make_table(table: Table) -> str:
    """A pipe table; its title and caption are left to the document."""
    figures = len(table.header) - table.text_columns
    alignment = ["---"] * table.text_columns + ["---:"] * figures
    rows = ([_escape_cell(cell.write()) for cell in row] for row in table.rows)
    header = map(_escape_cell, table.header)
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, alignment, *rows))


def escape_markdown(text: str) -> str:
    """A text within a line; its own lines become one."""
    return _SPECIAL.sub(r"\\\g<0>", " ".join(text.splitlines()))


def _escape_cell(text: str) -> str:
    return "<br>".join(escape_markdown(line).replace("|", "\\|") for line in text.split("\n"))
