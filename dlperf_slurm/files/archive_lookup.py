"""A path in a run's folder or ZIP archive -> whether it is in an archive, and what is there.

All reading goes through this module; the reader of archives is imported for an archive alone.
"""

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from dlperf_slurm.files.archives import Archive

ARCHIVE_SUFFIX = ".zip"
# maximum size of a file in an archive, which is read into memory
FILE_LIMIT_BYTES = 2**29


def list_names(folder: Path, root: Path) -> "list[str]":
    """List the names in a folder below `root`, a run or archive; raises FileNotFoundError."""
    archive = find_archive(root)
    return os.listdir(folder) if archive is None else list(archive.list_names(folder))


def has_file(path: Path, root: Path) -> bool:
    """Return whether a file or folder exists at a path below `root`, a run's folder or archive."""
    archive = find_archive(root)
    if archive is None:
        return path.exists()
    try:
        return path.name in archive.list_names(path.parent)
    except FileNotFoundError:
        return False


def find_archive(root: Path) -> "Optional[Archive]":
    """Open the archive at a path; None if the path is not a regular file named *.zip.

    Raises FileProblem if the file is not a valid archive of a run.
    """
    if root.suffix != ARCHIVE_SUFFIX:
        return None
    try:
        status = root.stat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    from dlperf_slurm.files.archives import open_archive

    return open_archive(str(root), status.st_dev, status.st_ino, status.st_size, status.st_mtime)
