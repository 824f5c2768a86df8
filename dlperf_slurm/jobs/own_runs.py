"""Whether a run is this user's own, by a mark in the user's state folder.

A run directory may be from anybody. Commands that start, submit again or cancel without being told
so by the run's name ask `is_own`; whoever names a run to `submit`, `resume` or `retry` owns it from
then on.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from dlperf_slurm.config.folders import evict_oldest, find_state_dir, hash_path, make_state_dir
from dlperf_slurm.errors import InputError
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.reading import read_json
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.jobs.manifest import MANIFEST_FILE
from dlperf_slurm.jobs.run_directory import MATRIX_FILE, SITE_FILE, Run

# of marks that are kept; the oldest go first
MOST_RUNS = 1000
_MARKS_DIR = "runs"


def mark_own(run: Run) -> str:
    """Mark a run as this user's own; return why that cannot be, or "".

    Nothing else depends on the mark: without it the run is followed alone.
    """
    try:
        mark = _find_mark(run)
        make_state_dir(_MARKS_DIR)
        write_file(mark, json.dumps(_describe(run)).encode(), mode=0o600)
    except (OSError, InputError) as error:
        return str(error)
    evict_oldest(mark.parent, MOST_RUNS)
    return ""


def is_own(run: Run) -> bool:
    """Whether this user began or continued the run by its name, and nobody else made its files.

    A directory that was copied, moved, or put in the place of the one that was marked is not.
    """
    with suppress(OSError, InputError, FileProblem):
        mark = _find_mark(run)
        return (
            _is_private(mark.parent)
            and _is_private(mark)
            and all(_is_of_user(path) for path in _list_files(run))
            and read_json(mark) == _describe(run)
        )
    return False


def _find_mark(run: Run) -> Path:
    """The file of a run's mark, by the run's real path."""
    return find_state_dir() / _MARKS_DIR / hash_path(run.path)


def _describe(run: Run) -> dict[str, Any]:
    """What a copy does not have: inodes, and when a file that never changes was put there.

    The number of the file system is no part of it, which differs between hosts.
    """
    matrix = (run.path / MATRIX_FILE).stat()
    return {
        "path": str(run.path.resolve()),
        "run_id": run.run_id,
        "inodes": [run.path.stat().st_ino, matrix.st_ino],
        "changed_ns": matrix.st_ctime_ns,
    }


def _list_files(run: Run) -> list[Path]:
    """The run directory, and the files in it that decide what is run and where."""
    return [run.path, *(run.path / name for name in (MANIFEST_FILE, MATRIX_FILE, SITE_FILE))]


def _is_of_user(path: Path) -> bool:
    return path.lstat().st_uid == os.geteuid()


def _is_private(path: Path) -> bool:
    """Whether nobody else can have written it."""
    return _is_of_user(path) and not path.lstat().st_mode & 0o022
