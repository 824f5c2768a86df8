"""Declared columns of the frames -> docs/columns.md; run it after a change of one."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from dlperf_slurm.results.declared_columns import COMPARISON, HISTORY, RUN_FRAMES, Column

FILE = Path(__file__).with_name("columns.md")

HEAD = """\
# Columns of the frames

What `open_run(...).frame(name)`, `compare(...).frame()` and `open_history(...).frame()` of the
Python interface return, column by column. The frames `cases`, `repeats` and `steps` are the files
`cases.parquet`, `repeats.parquet` and `steps.parquet` of a report too, and `cases` is `report.csv`.

A value that is not known, or that a case does not have, is `NA` in a frame, NULL in Parquet and an
empty field in CSV. Frames of a run join by `case_id`, `repeat` and `rank`, those of two runs of one
matrix by `case_id`. Where the unit is `unit`, it is in the column of that name.

Made by `python docs/make_columns.py` from `dlperf_slurm/results/declared_columns.py`.
"""

# of a row of each frame
ROWS = {
    "cases": "a planned case, measured or not",
    "repeats": "a planned repeat of a case, measured or not",
    "ranks": "a rank of a repeat with a sound record",
    "steps": "a measured step of a rank of a repeat with a sound record",
    "compare": "a quantity of a case of either run",
    "history": "a case in one of the runs",
}

# pandas dtype -> what it is called here
KINDS = {
    "string": "text",
    "category": "text",
    "Int64": "integer",
    "int32": "integer",
    "Float64": "number",
    "float64": "number",
    "boolean": "true or false",
}


def make_document() -> str:
    """The text of docs/columns.md."""
    frames = {**RUN_FRAMES, "compare": COMPARISON, "history": HISTORY}
    parts = (line for name, columns in frames.items() for line in list_lines(name, columns))
    return HEAD + "\n" + "\n".join(parts)


def list_lines(name: str, columns: Iterable[Column]) -> Iterator[str]:
    """The section of a frame."""
    yield f"## {name}\n"
    yield f"One row for each of: {ROWS[name]}.\n"
    yield "| column | type | unit | meaning |"
    yield "|---|---|---|---|"
    for column in columns:
        yield f"| `{column.name}` | {KINDS[column.kind]} | {column.unit} | {column.meaning} |"
    yield ""


if __name__ == "__main__":
    FILE.write_text(make_document(), encoding="utf-8")
