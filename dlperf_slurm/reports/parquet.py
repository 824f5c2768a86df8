"""A typed frame -> the bytes of a Parquet file, through DuckDB."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.results.database import open_database

if TYPE_CHECKING:
    from pandas import DataFrame

# what a column of a frame is in the file, whatever it has
_TYPES = {
    "string": "VARCHAR",
    "category": "VARCHAR",
    "boolean": "BOOLEAN",
    "Int64": "BIGINT",
    "int32": "INTEGER",
    "Float64": "DOUBLE",
    "float64": "DOUBLE",
}


def serialize_frame(frame: "DataFrame") -> bytes:
    """The rows of a frame; NA is NULL."""
    columns = ", ".join(
        f'CAST("{name}" AS {_TYPES[str(kind)]}) AS "{name}"' for name, kind in frame.dtypes.items()
    )
    with tempfile.TemporaryDirectory() as folder, open_database() as connection:
        path = Path(folder, "frame.parquet")
        # COPY takes its target as a literal only
        target = str(path).replace("'", "''")
        connection.register("rows", frame)
        connection.execute(f"COPY (SELECT {columns} FROM rows) TO '{target}' (FORMAT parquet)")
        return path.read_bytes()
