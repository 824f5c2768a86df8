"""Report -> Parquet: a row for each case, with the columns of the CSV, each repeat, each step."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.reports.formats import Report
from dlperf_slurm.results.case_columns import make_case_columns
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.database import open_database
from dlperf_slurm.results.detail_frames import make_repeat_frame, make_step_frame

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
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
    "float64": "DOUBLE",
}


def serialize(report: Report) -> dict[str, bytes]:
    """The frames with their types; a figure that does not exist is NULL."""
    return {
        "cases.parquet": serialize_frame(make_case_columns(report.summary.frame)),
        "repeats.parquet": serialize_frame(make_repeat_frame(report.cases)),
        "steps.parquet": serialize_steps(report.cases),
    }


def serialize_frame(frame: "DataFrame") -> bytes:
    """The rows of a typed frame as the bytes of a file, made by DuckDB; what is missing is NULL."""
    with _open_folder() as (folder, connection):
        _write(connection, frame, folder / "frame.parquet")
        return (folder / "frame.parquet").read_bytes()


def serialize_steps(cases: Sequence[CaseOutcomes]) -> bytes:
    """The steps of all cases, of which one at a time is in the memory: a run may have millions."""
    with _open_folder() as (folder, connection):
        # without steps the file has its columns nevertheless
        parts = [folder / "none.parquet", *(folder / f"{n}.parquet" for n in range(len(cases)))]
        for path, some in zip(parts, ([], *([one] for one in cases))):
            # read once, a moment later
            _write(connection, make_step_frame(some), path, "uncompressed")
        rows = f"SELECT * FROM read_parquet([{', '.join(map(_quote, parts))}])"
        connection.execute(f"COPY ({rows}) TO {_quote(folder / 'all.parquet')} (FORMAT parquet)")
        return (folder / "all.parquet").read_bytes()


@contextmanager
def _open_folder() -> "Iterator[tuple[Path, DuckDBPyConnection]]":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_database(written=folder) as connection:
            yield folder, connection


def _write(
    connection: "DuckDBPyConnection", frame: "DataFrame", path: Path, compression: str = "snappy"
) -> None:
    columns = ", ".join(
        f'CAST("{name}" AS {_TYPES[str(kind)]}) AS "{name}"' for name, kind in frame.dtypes.items()
    )
    connection.register("rows", frame)
    options = f"FORMAT parquet, COMPRESSION {compression}"
    connection.execute(f"COPY (SELECT {columns} FROM rows) TO {_quote(path)} ({options})")


def _quote(path: Path) -> str:
    """COPY takes its target as a literal only."""
    return "'" + str(path).replace("'", "''") + "'"
