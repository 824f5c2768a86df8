"""A run -> whether it is this user's own, by a mark file in the user's state folder.

A run directory may come from anyone. `wait` retries and releases only the user's own runs, and
`cancel` without a run's name cancels only an own run. Naming a run to `submit`, `resume` or `retry`
marks it as the user's own.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from dlperf_slurm.config.folders import evict_oldest, find_state_dir, hash_path, make_private_dir
from dlperf_slurm.errors import InputError
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.reading import read_json
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.jobs.manifest import MANIFEST_FILE
from dlperf_slurm.jobs.run_directory import MATRIX_FILE, SITE_FILE, Run

# maximum number of marks; the oldest are removed
MOST_RUNS = 1000
_MARKS_DIR = "runs"


def mark_own(run: Run) -> str:
    """Mark a run as this user's own by a file in the user's state folder.

    Returns why that failed, or "". A run without a mark can still be followed, but is not
    resubmitted automatically.
    """
    try:
        mark = _find_mark(run)
        make_private_dir(find_state_dir(), _MARKS_DIR)
        write_file(mark, json.dumps(_describe(run)).encode(), mode=0o600)
    except (OSError, InputError) as error:
        return str(error)
    evict_oldest(mark.parent, MOST_RUNS)
    return ""


def is_own(run: Run) -> bool:
    """Return whether this user marked the run, and its files are still those that were marked.

    False if another user owns the files, or if the directory was copied, moved or replaced.
    """
    with suppress(OSError, InputError, FileProblem):
        mark = _find_mark(run)
        return (
            _is_private(mark.parent)
            and _is_private(mark)
            and has_own_files(run)
            and read_json(mark) == _describe(run)
        )
    return False


def has_own_files(run: Run) -> bool:
    """Return whether no other user owns the run directory or a file that decides which jobs run."""
    paths = [run.path, *(run.path / name for name in (MANIFEST_FILE, MATRIX_FILE, SITE_FILE))]
    for path in paths:
        with suppress(OSError):
            if not _is_of_user(path):
                return False
    return True


def _find_mark(run: Run) -> Path:
    """Return the path of a run's mark file, which is named after the run's real path."""
    return find_state_dir() / _MARKS_DIR / hash_path(run.path)


def _describe(run: Run) -> dict[str, Any]:
    """Return file facts that a copy of a run cannot have: inodes and an unchanging file's ctime.

    The device number is left out, as it differs between hosts.
    """
    matrix = (run.path / MATRIX_FILE).stat()
    return {
        "path": str(run.path.resolve()),
        "run_id": run.run_id,
        "inodes": [run.path.stat().st_ino, matrix.st_ino],
        "changed_ns": matrix.st_ctime_ns,
    }


def _is_of_user(path: Path) -> bool:
    return path.lstat().st_uid == os.geteuid()


def _is_private(path: Path) -> bool:
    """Return whether the path is owned by this user, and not writable by group or others."""
    return _is_of_user(path) and not path.lstat().st_mode & 0o022
