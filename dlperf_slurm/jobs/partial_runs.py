"""A results folder -> the partial run directories in it, left by killed commands, are removed.

The process that creates a run directory holds a lock on a file in it, which the kernel releases
when the process ends.
"""

import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dlperf_slurm.files.reading import open_file
from dlperf_slurm.files.writing import open_to_append

PARTIAL_SUFFIX = ".partial"
LOCK_FILE = ".making"
# matches a hidden run id
_NAME = re.compile(rf"\.\d{{8}}-\d{{6}}-[\w.-]+-[0-9a-f]{{4}}{re.escape(PARTIAL_SUFFIX)}", re.ASCII)
# age from which an unlocked folder is abandoned; creating a run takes far less
UNLOCKED_SECONDS = 3600.0


@contextmanager
def create_partial_run(partial: Path) -> Iterator[None]:
    """Create a private folder, and lock it while the context creates a run directory in it."""
    partial.parent.mkdir(parents=True, exist_ok=True)
    partial.mkdir(mode=0o700)
    with open_to_append(partial / LOCK_FILE, root=partial) as lock:
        # on a file system without locks, `remove_leftovers` goes by the folder's age
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def remove_leftovers(results_dir: Path) -> list[Path]:
    """Delete the incomplete run directories of commands that were killed; return their paths."""
    found = [path for path in results_dir.glob(f".*{PARTIAL_SUFFIX}") if _is_left_over(path)]
    for path in found:
        shutil.rmtree(path, ignore_errors=True)
    return [path for path in found if not path.exists()]


def _is_left_over(partial: Path) -> bool:
    """Return whether a folder is an incomplete run directory whose process has ended."""
    try:
        status = partial.lstat()
        # only folders of this user that have a name of this tool
        is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if not is_own or not _NAME.fullmatch(partial.name):
            return False
        with open_file(partial / LOCK_FILE, root=partial):
            pass
        # opened for writing: NFS gives no exclusive lock on a file that is open for reading only
        with open_to_append(partial / LOCK_FILE, root=partial) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except BlockingIOError:
        return False
    except OSError:
        try:
            return time.time() - partial.lstat().st_mtime > UNLOCKED_SECONDS
        except OSError:
            # another process has just removed it
            return False
