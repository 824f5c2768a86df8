"""Report -> Parquet: a row for each case, with the columns of the CSV, and for each repeat."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.reports.formats import Report
from dlperf_slurm.results.database import open_database

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pandas import DataFrame

SHOWS_PLOTS = False

# What a column of a frame is in the file, whatever it has. A category is text there as it is, which
# takes half of the time of one that was cast.
_TYPES = {
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
    "datetime64[ns, UTC]": "TIMESTAMP WITH TIME ZONE",
    "Int64": "BIGINT",
    "int32": "INTEGER",
    "float64": "DOUBLE",
}


def serialize(report: Report) -> dict[str, bytes]:
    """The frames with their types; a figure that does not exist is NULL."""
    results = report.summary.results
    frames = (results.case_columns, results.repeat_columns)
    return dict(zip(("cases.parquet", "repeats.parquet"), serialize_frames(*frames)))


def serialize_frames(*frames: "DataFrame") -> list[bytes]:
    """The rows of each typed frame as the bytes of a file of DuckDB's; what is missing is NULL."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.parquet") for number in range(len(frames))]
        with open_database(written=Path(folder)) as connection:
            for frame, path in zip(frames, paths):
                write_frame(connection, frame, path)
        return [path.read_bytes() for path in paths]


def write_frame(connection: "DuckDBPyConnection", frame: "DataFrame", path: Path) -> None:
    """Write the rows of a typed frame to where the connection reaches."""
    columns = ", ".join(_cast(str(name), str(kind)) for name, kind in frame.dtypes.items())
    connection.register("rows", frame)
    connection.execute(f"COPY (SELECT {columns} FROM rows) TO {quote(path)} (FORMAT parquet)")


def _cast(name: str, kind: str) -> str:
    return f'"{name}"' if kind == "category" else f'CAST("{name}" AS {_TYPES[kind]}) AS "{name}"'


def quote(path: Path) -> str:
    """COPY takes its target as a literal only."""
    return "'" + str(path).replace("'", "''") + "'"
