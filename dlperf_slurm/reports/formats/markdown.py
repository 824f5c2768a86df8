"""Report -> Markdown."""

import re
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

from dlperf_slurm.plain_text import make_one_line
from dlperf_slurm.reports.cells import Cell, Table
from dlperf_slurm.reports.formats import Report

FILE_NAME = "report.md"
SHOWS_PLOTS = False

# characters with a meaning in CommonMark, GitHub's or pandoc's Markdown: includes underscores at
# the ends of words, "]" before a link target, entities, and "#" at the end of a heading
_SPECIAL = re.compile(r"[\\`*<~^$]|(?<![^\W_])_|_(?![^\W_])|\](?=[({])|&(?=#?\w+;)|#(?=#*$)")
# in the text of a link, unless it is escaped already
_BRACKET = re.compile(r"(?<!\\)[\[\]]")


def serialize(report: Report) -> dict[str, bytes]:
    """Serialize the report as one Markdown file for GitHub and pandoc, with all text escaped."""
    summary = report.summary
    title, run = escape_markdown(summary.manifest.title), escape_markdown(summary.description)
    banner = [f"**{escape_markdown(summary.banner)}**"] if summary.banner else []
    blocks = [f"# {title}", run, *banner, summary.method, *list_blocks(summary.tables)]
    return {FILE_NAME: _join(blocks, summary.footnotes).encode()}


def write_document(
    title: str,
    tables: Iterable[Table],
    notes: Sequence[str],
    paragraphs: Iterable[str] = (),
    links: Iterable[tuple[str, str]] = (),
) -> str:
    """Format a title, paragraphs, links as (text, address), tables and footnotes as Markdown."""
    leads = [_make_link(escape_markdown(text), address) for text, address in links]
    blocks = [f"# {escape_markdown(title)}", *map(escape_markdown, paragraphs)]
    return _join([*blocks, *[" | ".join(leads)] * bool(leads), *list_blocks(tables)], notes)


def _join(blocks: Sequence[str], notes: Sequence[str]) -> str:
    """Join Markdown blocks with blank lines, and add the footnotes (`notes`), numbered from 1."""
    numbered = [f"[{n}] {escape_markdown(text)}  " for n, text in enumerate(notes, start=1)]
    return "\n\n".join([*blocks, *["\n".join(numbered)] * bool(numbered)]) + "\n"


def list_blocks(tables: Iterable[Table]) -> Iterator[str]:
    """Yield title, table and caption of each table as separate Markdown blocks."""
    for table in tables:
        yield f"## {escape_markdown(table.heading)}"
        yield make_table(table)
        if table.caption:
            yield f"{escape_markdown(table.caption)}."


def make_table(table: Table) -> str:
    """Format a table as a Markdown pipe table, without title and caption."""
    figures = len(table.header) - table.text_columns
    alignment = ["---"] * table.text_columns + ["---:"] * figures
    rows = ([_make_cell(cell) for cell in row] for row in table.rows)
    header = map(_escape_cell, table.header)
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, alignment, *rows))


def escape_markdown(text: str) -> str:
    """Escape a text for Markdown, join its lines and remove control characters."""
    return _SPECIAL.sub(r"\\\g<0>", make_one_line(text))


def _make_cell(cell: Cell) -> str:
    text = _escape_cell(cell.write())
    return _make_link(text, cell.link) if cell.link else text


def _make_link(text: str, address: str) -> str:
    """Make a Markdown link from an escaped text and an address, possibly percent-encoded."""
    escaped = _BRACKET.sub(r"\\\g<0>", text)
    return f"[{escaped}]({quote(address, safe='/%#')})"


def _escape_cell(text: str) -> str:
    return "<br>".join(escape_markdown(line).replace("|", "\\|") for line in text.split("\n"))
