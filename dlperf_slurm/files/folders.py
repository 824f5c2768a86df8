"""Open and make folders without following links, and set the permissions of new files."""

import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator, Optional

from dlperf_slurm.files import FileProblem

# what an open that follows no link says of one: it depends on whether a folder is asked for
IS_LINK = (errno.ELOOP, errno.ENOTDIR)
PRIVATE_MASK = 0o077


@contextmanager
def open_folder(path: Path, root: Optional[Path] = None, is_made: bool = False) -> Iterator[int]:
    """Open a folder, and yield its descriptor; `is_made` makes what is missing of it below `root`.

    Below `root`, a part of `path`, no link is followed; without one, all are. Raises
    FileNotFoundError when it is not there, FileProblem when a link or no folder is in the way.
    """
    descriptor = os.open(encode_path(path if root is None else root), os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in () if root is None else list_parts(path, root):
            if is_made:
                _make_below(descriptor, name, path)
            below = _open_below(descriptor, name, path)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def make_folder(path: Path, root: Path) -> None:
    """Make a folder, and what is missing between it and `root`; raises as `open_folder` does."""
    with open_folder(path, root, is_made=True):
        pass


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


def encode_path(path: Path) -> bytes:
    """The path as the system has it; raises FileProblem for what is the name of no file."""
    return _encode(str(path))


def _encode(text: str) -> bytes:
    try:
        name = os.fsencode(text)
    except UnicodeEncodeError:
        name = b"\0"
    if b"\0" in name:
        raise FileProblem(f"{text!a}: is no name of a file")
    return name


def list_parts(path: Path, root: Path) -> Iterator[bytes]:
    """The names on the way from `root` to `path`; FileProblem when it leads out again."""
    parts = path.parts[len(root.parts) :]
    if path.parts[: len(root.parts)] != root.parts or ".." in parts:
        raise FileProblem(f"{path}: leads out of {root}")
    return map(_encode, parts)


def _make_below(folder: int, name: bytes, path: Path) -> None:
    try:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
    except OSError as error:
        raise FileProblem(f"{path}: cannot be made: {error.strerror}") from error


def _open_below(folder: int, name: bytes, path: Path) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno in IS_LINK:
            raise FileProblem(
                f"{path}: {os.fsdecode(name)} is a link, or no folder; links in a run directory "
                "are not followed"
            ) from error
        raise
