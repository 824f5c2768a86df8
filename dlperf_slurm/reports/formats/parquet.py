"""Report -> Parquet: a row for each case, with the columns of the CSV, each repeat, each step."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.reports.formats import Report
from dlperf_slurm.results.case_columns import make_case_columns
from dlperf_slurm.results.database import open_database
from dlperf_slurm.results.detail_frames import make_repeat_frame, make_step_frame

if TYPE_CHECKING:
    from pandas import DataFrame

SHOWS_PLOTS = False

# what a column of a frame is in the file, whatever it has
_TYPES = {
    "string": "VARCHAR",
    "category": "VARCHAR",
    "boolean": "BOOLEAN",
    "datetime64[ns, UTC]": "TIMESTAMP WITH TIME ZONE",
    "Int64": "BIGINT",
    "int32": "INTEGER",
    "Float64": "DOUBLE",
    "float64": "DOUBLE",
}


def serialize(report: Report) -> dict[str, bytes]:
    """The frames with their types; a figure that does not exist is NULL."""
    frames = {
        "cases.parquet": make_case_columns(report.summary.frame),
        "repeats.parquet": make_repeat_frame(report.cases),
        "steps.parquet": make_step_frame(report.cases),
    }
    return {name: serialize_frame(frame) for name, frame in frames.items()}


def serialize_frame(frame: "DataFrame") -> bytes:
    """The rows of a typed frame as the bytes of a file, made by DuckDB; NA is NULL."""
    columns = ", ".join(
        f'CAST("{name}" AS {_TYPES[str(kind)]}) AS "{name}"' for name, kind in frame.dtypes.items()
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "frame.parquet")
        # COPY takes its target as a literal only
        target = str(path).replace("'", "''")
        with open_database(written=path) as connection:
            connection.register("rows", frame)
            connection.execute(f"COPY (SELECT {columns} FROM rows) TO '{target}' (FORMAT parquet)")
        return path.read_bytes()
