"""A run's own permissions, and a cache's -> those of the files that are made in it."""

import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

PRIVATE_MASK = 0o077


@contextmanager
def file_permissions(mask: int) -> Iterator[None]:
    """Make files and folders without these permissions, whatever umask the shell has."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def run_permissions(run_path: Path) -> Iterator[None]:
    """Make files of a run with the permissions that its directory, or its archive, has."""
    try:
        mode = stat.S_IMODE(run_path.stat().st_mode)
    except OSError:
        # whoever writes next says that it is away
        mode = 0
    # who may read an archive may enter the folder beside it
    allowed = mode | (mode & 0o444) >> 2 | stat.S_IRWXU
    with file_permissions(0o777 & ~allowed):
        yield
