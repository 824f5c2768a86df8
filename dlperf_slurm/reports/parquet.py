"""Summary -> Parquet, the lines of the CSV with their types, through DuckDB."""

import csv
import io
import tempfile
from pathlib import Path

from dlperf_slurm.reports import csv_format
from dlperf_slurm.reports.summarize import Summary
from dlperf_slurm.results.database import open_database

FILE_NAME = "report.parquet"

# of the CSV's fields; all others are figures
TEXT_FIELDS = frozenset(
    (
        "case_id",
        "mode",
        "model",
        "framework",
        "compiler",
        "topology",
        "precision",
        # "max" and ladders are no numbers
        "batch_size_per_device",
        "batch_sizes_measured",
        "unit",
        "baseline",
        "data",
        "slowest_host",
        # one device may have had several ranks
        "slowest_rank",
        "problem",
        "footnotes",
    )
)
COUNT_FIELDS = frozenset(
    (
        "repeats_measured",
        "repeats_planned",
        "data_workers",
        "prefetch_batches",
        "seeds_at_target",
        "peak_memory_bytes",
    )
)


def serialize(summary: Summary) -> bytes:
    """One row group; a figure that does not exist is NULL."""
    reader = csv.DictReader(io.StringIO(csv_format.serialize(summary), newline=""))
    rows = [[_read_value(name, line[name]) for name in csv_format.FIELDS] for line in reader]
    columns = ", ".join(f'"{name}" {_find_type(name)}' for name in csv_format.FIELDS)
    places = ", ".join("?" * len(csv_format.FIELDS))
    with tempfile.TemporaryDirectory() as folder, open_database() as connection:
        connection.execute(f"CREATE TABLE report ({columns})")
        if rows:
            connection.executemany(f"INSERT INTO report VALUES ({places})", rows)
        path = Path(folder, FILE_NAME)
        # COPY takes its target as a literal only
        target = str(path).replace("'", "''")
        connection.execute(f"COPY report TO '{target}' (FORMAT parquet)")
        return path.read_bytes()


def _find_type(name: str) -> str:
    if name in TEXT_FIELDS:
        return "VARCHAR"
    return "BIGINT" if name in COUNT_FIELDS else "DOUBLE"


def _read_value(name: str, text: str) -> object:
    if name in TEXT_FIELDS:
        return text
    if not text:
        return None
    return int(text) if name in COUNT_FIELDS else float(text)
