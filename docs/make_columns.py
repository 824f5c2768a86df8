"""Declared columns of the frames -> docs/columns.md; run it after a change of one."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from dlperf_slurm.results.cases import CASE_TABLE
from dlperf_slurm.results.columns import Column
from dlperf_slurm.results.compare import COMPARISON
from dlperf_slurm.results.detail_frames import RANKS, STEPS
from dlperf_slurm.results.history.timeline import HISTORY
from dlperf_slurm.results.repeats import REPEATS

FILE = Path(__file__).with_name("columns.md")

HEAD = """\
# Columns of the frames

What `open_run(...).frame(name)`, `compare(...).frame()` and `open_history(...).frame()` of the
Python interface return, column by column. The frames `cases` and `repeats` are the files
`cases.parquet` and `repeats.parquet` of a report too, `steps` is `steps/*/steps.parquet`, and
`cases` is `report.csv`.

A value that is not known, or that a case does not have, is `NaN` in a frame's columns of numbers
and `NA` in the others (`isna()` finds both), NULL in Parquet and an empty field in CSV. Frames of
a run join by `case_id`, `repeat` and `rank`, those of two runs of one matrix by `case_id`. Where
the unit is `unit`, it is in the column of that name.

Made by `python docs/make_columns.py` from what `dlperf_slurm/results` declares.
"""

# what a row of each frame is, and its columns
FRAMES = {
    "cases": ("a planned case, measured or not", CASE_TABLE),
    "repeats": ("a planned repeat of a case, measured or not", REPEATS),
    "ranks": ("a rank of a repeat with a sound record", RANKS),
    "steps": ("a measured step of a rank of a repeat with a sound record", STEPS),
    "compare": ("a quantity of a case of either run", COMPARISON),
    "history": ("a case in one of the runs", HISTORY),
}

# pandas dtype -> what it is called here
KINDS = {
    "string": "text",
    "category": "text",
    "Int64": "integer",
    "int32": "integer",
    "float64": "number",
    "boolean": "true or false",
    "datetime64[ns, UTC]": "time",
}


def make_document() -> str:
    """The text of docs/columns.md."""
    parts = (line for name in FRAMES for line in list_lines(name, *FRAMES[name]))
    return HEAD + "\n" + "\n".join(parts)


def list_lines(name: str, row: str, columns: Iterable[Column]) -> Iterator[str]:
    """The section of a frame."""
    yield f"## {name}\n"
    yield f"One row for each of: {row}.\n"
    yield "| column | type | unit | meaning |"
    yield "|---|---|---|---|"
    for column in columns:
        for name, meaning in zip(column.published_names, column.meanings):
            yield f"| `{name}` | {KINDS[column.dtype]} | {column.unit} | {meaning} |"
    yield ""


if __name__ == "__main__":
    FILE.write_text(make_document(), encoding="utf-8")
