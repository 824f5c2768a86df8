"""A folder, in a directory or in an archive -> the names in it."""

import os
from pathlib import Path

from dlperf_slurm.files.archives import find_archive


def list_names(folder: Path, root: Path) -> "list[str]":
    """The names in a folder of a run, whose own is `root`, in no order.

    Raises FileNotFoundError where there is no such folder.
    """
    archive = find_archive(root)
    return os.listdir(folder) if archive is None else list(archive.list_names(folder))


def has_file(path: Path, root: Path) -> bool:
    """Whether a file is there in a run, whose folder or archive is `root`."""
    archive = find_archive(root)
    if archive is None:
        return path.exists()
    try:
        return path.name in archive.list_names(path.parent)
    except FileNotFoundError:
        return False
