"""A results folder -> run directories that a kill left half-made are removed, and named.

Who makes one holds a lock on a file in it, which ends with its process however that ends.
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
# of the ids that runs have
_NAME = re.compile(rf"\.\d{{8}}-\d{{6}}-[\w.-]+-[0-9a-f]{{4}}{re.escape(PARTIAL_SUFFIX)}", re.ASCII)
# before it has its lock: nobody takes so long to make one
UNLOCKED_SECONDS = 3600.0


@contextmanager
def hold_partial(partial: Path) -> Iterator[None]:
    """Make a folder for its owner alone, and hold it while a run directory is made in it."""
    partial.parent.mkdir(parents=True, exist_ok=True)
    partial.mkdir(mode=0o700)
    with open_to_append(partial / LOCK_FILE, root=partial) as lock:
        # a file system without locks takes the folder's age
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def remove_leftovers(results_dir: Path) -> list[Path]:
    """Remove what nobody makes any more; returns their paths."""
    found = [path for path in results_dir.glob(f".*{PARTIAL_SUFFIX}") if _is_left_over(path)]
    for path in found:
        shutil.rmtree(path, ignore_errors=True)
    return [path for path in found if not path.exists()]


def _is_left_over(partial: Path) -> bool:
    try:
        status = partial.lstat()
        # a folder of this user, which is called as this tool calls one
        is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if not is_own or not _NAME.fullmatch(partial.name):
            return False
        with open_file(partial / LOCK_FILE, root=partial):
            pass
        # NFS locks nothing for writing that is open for reading
        with open_to_append(partial / LOCK_FILE, root=partial) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except BlockingIOError:
        return False
    except OSError:
        try:
            return time.time() - partial.lstat().st_mtime > UNLOCKED_SECONDS
        except OSError:
            # somebody else removed it just now
            return False
