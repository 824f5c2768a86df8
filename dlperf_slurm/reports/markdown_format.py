"""Summary -> Markdown."""

from dlperf_slurm.reports.text import METHOD, Grid, describe_run, make_grids
from dlperf_slurm.summarize import Summary

FILE_NAME = "report.md"


def serialize(summary: Summary) -> str:
    """A document that GitHub and pandoc lay out; pipes in texts are escaped."""
    blocks = [f"# {summary.manifest.title}", describe_run(summary), METHOD]
    for grid in make_grids(summary):
        blocks += [f"## {grid.title}", make_table(grid), f"{grid.caption}."]
    if summary.footnotes:
        blocks.append(
            "\n".join(f"[{n}] {text}  " for n, text in enumerate(summary.footnotes, start=1))
        )
    return "\n\n".join(blocks) + "\n"


def make_table(grid: Grid) -> str:
    """A pipe table; the grid's title and caption are left to the document."""
    figures = len(grid.header) - grid.text_columns
    alignment = ["---"] * grid.text_columns + ["---:"] * figures
    rows = [grid.header, alignment, *grid.rows]
    return "\n".join("| " + " | ".join(map(_escape, row)) + " |" for row in rows)


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")
