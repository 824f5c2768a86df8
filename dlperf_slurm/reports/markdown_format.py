"""Summary -> Markdown."""

from dlperf_slurm.reports.text import (
    METHOD,
    describe_baselines,
    describe_run,
    make_header,
    make_rows,
)
from dlperf_slurm.summarize import Summary, Table

FILE_NAME = "report.md"


def serialize(summary: Summary) -> str:
    """A document that GitHub and pandoc lay out; pipes in texts are escaped."""
    blocks = [f"# {summary.manifest.title}", describe_run(summary), METHOD]
    for table in summary.tables:
        blocks += [f"## {table.title}", _make_table(table), describe_baselines(table.columns) + "."]
    if summary.footnotes:
        blocks.append(
            "\n".join(f"[{n}] {text}  " for n, text in enumerate(summary.footnotes, start=1))
        )
    return "\n\n".join(blocks) + "\n"


def _make_table(table: Table) -> str:
    header = make_header(table)
    alignment = ["---"] * 2 + ["---:"] * (len(header) - 2)
    rows = [header, alignment, *make_rows(table)]
    return "\n".join("| " + " | ".join(map(_escape, row)) + " |" for row in rows)


def _escape(text: str) -> str:
    return text.replace("|", "\\|")
