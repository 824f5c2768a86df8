"""Bytes -> the end of a file that stays; links are not followed, and nothing is waited for."""

import errno
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Optional

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.folders import encode_path, open_folder

# for reading too: who appends looks at the end
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


@contextmanager
def open_to_append(path: Path, root: Optional[Path] = None) -> Iterator[int]:
    """Open a regular file, made if it is missing, whose descriptor adds to its end; or is locked.

    Below `root`, no link to a folder is followed; a link of the file's own name never is. Raises
    FileProblem, which names the file and the reason, when it cannot be had.
    """
    try:
        with open_folder(path.parent, root) as folder:
            descriptor = os.open(encode_path(Path(path.name)), _FLAGS, 0o666, dir_fd=folder)
    except FileProblem:
        raise
    except OSError as error:
        reason = "is a link" if error.errno == errno.ELOOP else error.strerror
        raise FileProblem(f"{path}: cannot be written: {reason}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileProblem(f"{path}: cannot be written: is no regular file")
        # a process that inherits it shall wait for a slow disk
        os.set_blocking(descriptor, True)
        yield descriptor
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """Write to the last byte: a disk that fills up takes a part first, and refuses the rest."""
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]
