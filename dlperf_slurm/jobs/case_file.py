"""An array task of a run -> its case, from the run's file of cases (one JSON line per case)."""

import os
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.json_files import ContractError, drop_schema_version
from dlperf_slurm.files.archive_lookup import find_archive
from dlperf_slurm.files.reading import open_file, parse_json
from dlperf_slurm.jobs.decode import build
from dlperf_slurm.jobs.run_directory import CASES_FILE, RunTask

# for the line of one case
LINE_LIMIT_BYTES = 2**20
# for the file of cases in an archive, which is kept in memory
ARCHIVED_LIMIT_BYTES = 2**26


def fingerprint_cases(run_dir: Path) -> tuple[int, int, int]:
    """Return size, modification time in ns and inode of a run's file of cases, or of its archive.

    Raises FileNotFoundError if there is neither.
    """
    is_archive = find_archive(run_dir) is not None
    # not pathlib: this is called for each array task
    status = os.stat(run_dir if is_archive else f"{run_dir}/{CASES_FILE}")  # noqa: PTH116
    return status.st_size, status.st_mtime_ns, status.st_ino


def read_planned_case(run_dir: Path, task: RunTask) -> Case:
    """Read the case of an array task from the run's file of cases, as the worker reads it.

    Raises FileNotFoundError without a file of cases, FileProblem if there is no valid case at the
    task's byte offset. That the case has the id of the task is not checked.
    """
    case = _read_case(run_dir, task.case_id, task.case_offset, fingerprint_cases(run_dir))
    return replace(case, repeat=task.repeat, attempt=task.attempt, seed=task.seed)


# all repeats of a case share one line; read again if the file has changed
@lru_cache(maxsize=16)
def _read_case(run_dir: Path, case_id: str, offset: int, fingerprint: tuple[int, int, int]) -> Case:
    """Read the case in the line at a byte offset, with 1 as repeat and attempt, and 0 as seed.

    The line has none of these three. A new `fingerprint` of the file makes the cache read it again;
    `case_id` is only for messages. Raises FileProblem.
    """
    where = f"{run_dir / CASES_FILE}: the case {case_id}"
    archive, path = find_archive(run_dir), run_dir / CASES_FILE
    kept = archive and archive.open_kept(path, ARCHIVED_LIMIT_BYTES)
    with kept or open_file(path, run_dir) as file:
        file.seek(offset)
        line = file.readline(LINE_LIMIT_BYTES)
    data = parse_json(line.decode("utf-8", "replace"), where)
    if not isinstance(data, dict):
        raise ContractError(f"{where}: is not a JSON object")
    own = {"repeat": 1, "attempt": 1, "seed": 0}
    return build(Case, drop_schema_version({**data, **own}, where), where)
