"""The step times of a case -> a Parquet file of its own in the report folder: steps/CASE_ID.

The files form one data set with the rows of `make_step_frame`.
"""

import os
import tempfile
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.files.folders import make_folder
from dlperf_slurm.files.writing import remove_file, write_file
from dlperf_slurm.reports.formats.parquet import write_frame
from dlperf_slurm.results.collect import Attempts, CaseOutcomes
from dlperf_slurm.results.database import open_database
from dlperf_slurm.results.detail_frames import make_step_frame

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

STEPS_DIR = "steps"
STEPS_FILE = "steps.parquet"


def find_step_file(folder: Path, case_id: str) -> Path:
    """Return the path of a case's file of step times in a report folder; it may not exist."""
    return folder / STEPS_DIR / case_id / STEPS_FILE


def write_step_files(attempts: Attempts, folder: Path) -> None:
    """Write the step times of each case to a file in the report folder; raises FileProblem."""
    # before forking, so that the processes need not import them
    for module in ("duckdb", "pandas"):
        import_module(module)
    with tempfile.TemporaryDirectory() as name:
        try:
            for _ in attempts.map_cases(
                lambda outcomes: write_case(outcomes, folder, Path(name)),
                attempts.run.manifest.cases,
            ):
                pass
        finally:
            # forked processes would inherit the database
            _connect.cache_clear()


def write_case(outcomes: CaseOutcomes, folder: Path, temporary: Path) -> None:
    """Write the step times of a case as Parquet to the report folder; raises FileProblem.

    For a case without step times, remove its file. `temporary` is a folder for files in the making.
    """
    path, root = find_step_file(folder, outcomes.case.case_id), folder.parent
    if all(outcome.rank_step_seconds is None for outcome in outcomes.outcomes):
        if path.parent.exists():
            remove_file(path, root)
        return
    own = temporary / f"{outcomes.case.case_id}.parquet"
    write_frame(_connect(temporary, os.getpid()), make_step_frame([outcomes]), own)
    make_folder(path.parent, root)
    write_file(path, own.read_bytes(), root=root)
    own.unlink()


@lru_cache(maxsize=1)
def _connect(folder: Path, process_id: int) -> "DuckDBPyConnection":
    """Open a database of this process, which forked ones cannot share, that writes to `folder`."""
    return open_database(written=folder)
