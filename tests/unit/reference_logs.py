"""Real logs and their publishers' figures, from tests/data, and excerpts of other logs."""

import csv
from dataclasses import dataclass
from pathlib import Path

from log_excerpts import EXCERPTS, LOGS

from dlperf_slurm.logs import Identity
from dlperf_slurm.logs.runs import ImportedRun, ImportOptions, import_log

FOLDER = Path(__file__).parents[1] / "data" / "logs"


@dataclass(frozen=True)
class PublishedRow:
    """A row of expected.csv; `log` may be a pattern for several repeats."""

    log: str
    rule: str
    expected: float
    tolerance: float


def read_published_rows() -> list[PublishedRow]:
    with (FOLDER / "expected.csv").open(encoding="utf-8", newline="") as file:
        return [
            PublishedRow(row["log"], row["rule"], float(row["expected"]), float(row["tol"]))
            for row in csv.DictReader(file)
        ]


def list_reference_logs() -> list[Path]:
    """List one log of each kind, the first of five repeats."""
    logs = sorted(path for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".csv")
    return [path for path in logs if not path.stem.endswith(("_2", "_3", "_4", "_5"))]


def list_all_logs() -> list[Path]:
    """List the reference logs, and excerpts for formats without a complete log."""
    return [*list_reference_logs(), *(EXCERPTS / name for name in LOGS)]


def ranks_print(log: Path) -> bool:
    """Return whether several ranks print in a log, with or without labels."""
    name = "/".join(log.parts[-2:])
    return b"]<std" in log.read_bytes() or (name in LOGS and LOGS[name].ranks_print)


def import_one(path: Path, like: Path) -> list[ImportedRun]:
    """Import the runs of a log, with options for values that an excerpt lacks."""
    expected = LOGS.get("/".join(like.parts[-2:]))
    told = Identity(devices=expected[1], batch_size_per_device=expected[2]) if expected else None
    return import_log(path, ImportOptions(settings=told or Identity()))


def import_bytes(folder: Path, like: Path, data: bytes) -> list[ImportedRun]:
    """Import the runs of a log with other content, with the same folder and file name."""
    path = folder / like.parent.name / like.name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return import_one(path, like)


def list_figures(runs: list[ImportedRun]) -> list[tuple]:
    return [(run.status, run.samples_per_s, run.publisher_samples_per_s) for run in runs]
