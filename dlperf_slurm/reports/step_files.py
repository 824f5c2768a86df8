"""The step times of a case -> a Parquet file of its own in the report folder: steps/CASE_ID.

The files form one data set with the rows of `make_step_frame`.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
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
    with open_step_writer() as writer:
        for _ in attempts.map_cases(
            lambda outcomes: writer.write(outcomes, folder), attempts.run.manifest.cases
        ):
            pass


class StepWriter:
    """A writer of files with step times; `own_folder` is a temporary folder.

    Forked processes may share a writer.
    """

    def __init__(self, own_folder: Path) -> None:
        self._own_folder = own_folder

    def write(self, outcomes: CaseOutcomes, folder: Path) -> None:
        """Write the step times of a case as Parquet to the report folder; raises FileProblem.

        For a case without step times, remove its file.
        """
        path, root = find_step_file(folder, outcomes.case.case_id), folder.parent
        if all(outcome.rank_step_seconds is None for outcome in outcomes.outcomes):
            if path.parent.exists():
                remove_file(path, root)
            return
        own = self._own_folder / f"{outcomes.case.case_id}.parquet"
        write_frame(self._connection, make_step_frame([outcomes]), own)
        make_folder(path.parent, root)
        write_file(path, own.read_bytes(), root=root)
        own.unlink()

    def close(self) -> None:
        """Close the DuckDB connection of this process, if any."""
        if "_connection" in vars(self):
            self._connection.close()

    @cached_property
    def _connection(self) -> "DuckDBPyConnection":
        # opened per process: a connection cannot be shared with forked processes
        return open_database(written=self._own_folder)


@contextmanager
def open_step_writer() -> Iterator[StepWriter]:
    """Open a step writer in a context that deletes its temporary folder at the end."""
    with tempfile.TemporaryDirectory() as name:
        writer = StepWriter(Path(name))
        try:
            yield writer
        finally:
            writer.close()
