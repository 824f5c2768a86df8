"""Report -> Parquet files of cases, with the columns of the CSV, and of repeats."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.reports.formats import Report
from dlperf_slurm.results.database import open_database

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pandas import DataFrame

SHOWS_PLOTS = False

# The column type in the file by pandas type. Categories become text without a cast, which is twice
# as fast.
_TYPES = {
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
    "datetime64[ns, UTC]": "TIMESTAMP WITH TIME ZONE",
    "Int64": "BIGINT",
    "int32": "INTEGER",
    "float64": "DOUBLE",
}


def serialize(report: Report) -> dict[str, bytes]:
    """Serialize the cases and the repeats as two Parquet files; missing values are NULL."""
    results = report.summary.results
    frames = (results.case_columns, results.repeat_columns)
    return dict(zip(("cases.parquet", "repeats.parquet"), serialize_frames(*frames)))


def serialize_frames(*frames: "DataFrame") -> list[bytes]:
    """Serialize each typed data frame as a Parquet file, written by DuckDB; NaN becomes NULL."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.parquet") for number in range(len(frames))]
        with open_database(written=Path(folder)) as connection:
            for frame, path in zip(frames, paths):
                write_frame(connection, frame, path)
        return [path.read_bytes() for path in paths]


def write_frame(connection: "DuckDBPyConnection", frame: "DataFrame", path: Path) -> None:
    """Write a typed data frame to a Parquet file.

    The connection (`open_database`) must be allowed to write to the file's folder.
    """
    columns = ", ".join(
        f'"{name}"' if kind == "category" else f'CAST("{name}" AS {_TYPES[str(kind)]}) AS "{name}"'
        for name, kind in frame.dtypes.items()
    )
    connection.register("rows", frame)
    connection.execute(f"COPY (SELECT {columns} FROM rows) TO {quote(path)} (FORMAT parquet)")


def quote(path: Path) -> str:
    """Quote a path as an SQL literal, because COPY does not accept a parameter."""
    return "'" + str(path).replace("'", "''") + "'"
