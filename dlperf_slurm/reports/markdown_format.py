"""Summary -> Markdown."""

import re

from dlperf_slurm.reports.grids import make_grids
from dlperf_slurm.reports.summarize import Summary
from dlperf_slurm.reports.text import METHOD, Grid, describe_run

FILE_NAME = "report.md"

# what CommonMark, GitHub or pandoc would not show as it is: underscores but those within a word,
# brackets before an address, entities, and what closes a heading
_SPECIAL = re.compile(r"[\\`*<~^$]|(?<![^\W_])_|_(?![^\W_])|\](?=[({])|&(?=#?\w+;)|#(?=#*$)")


def serialize(summary: Summary) -> str:
    """A document that GitHub and pandoc lay out; no text in it is taken for Markdown."""
    title, run = escape_markdown(summary.manifest.title), escape_markdown(describe_run(summary))
    blocks = [f"# {title}", run, METHOD]
    for grid in make_grids(summary):
        title, caption = escape_markdown(grid.title), escape_markdown(grid.caption)
        blocks += [f"## {title}", make_table(grid), f"{caption}."]
    if summary.footnotes:
        notes = enumerate(map(escape_markdown, summary.footnotes), start=1)
        blocks.append("\n".join(f"[{number}] {text}  " for number, text in notes))
    return "\n\n".join(blocks) + "\n"


def make_table(grid: Grid) -> str:
    """A pipe table; the grid's title and caption are left to the document."""
    figures = len(grid.header) - grid.text_columns
    alignment = ["---"] * grid.text_columns + ["---:"] * figures
    header, *rows = [[_escape_cell(text) for text in row] for row in (grid.header, *grid.rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, alignment, *rows))


def escape_markdown(text: str) -> str:
    """A text within a line; its own lines become one."""
    return _SPECIAL.sub(r"\\\g<0>", " ".join(text.splitlines()))


def _escape_cell(text: str) -> str:
    return "<br>".join(escape_markdown(line).replace("|", "\\|") for line in text.split("\n"))
