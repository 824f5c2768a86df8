"""A path -> its folder, opened or made without following links; permissions of new files."""

import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator, Optional, Union

from dlperf_slurm.files import FileProblem

# errors of open() with O_NOFOLLOW for a link, without and with O_DIRECTORY
IS_LINK = (errno.ELOOP, errno.ENOTDIR)
PRIVATE_MASK = 0o077


@contextmanager
def open_folder(path: Path, root: Optional[Path] = None, is_made: bool = False) -> Iterator[int]:
    """Open a folder and yield its descriptor; with `is_made`, make missing folders below `root`.

    `root` is a parent of `path`, below which no link is followed; without a root, links are
    followed. Raises FileNotFoundError if the folder is missing, FileProblem if a part of the path
    below `root` is a link or not a folder, or if `path` is outside `root`.
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
    """Make a folder and its missing parents below `root`; raises FileProblem for a link or file."""
    with open_folder(path, root, is_made=True):
        pass


@contextmanager
def file_permissions(mask: int) -> Iterator[None]:
    """Set the umask to `mask` while the context is active."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def run_permissions(run_path: Path) -> Iterator[None]:
    """Set the umask, in this context, to give new files the permissions of the run or archive."""
    try:
        mode = stat.S_IMODE(run_path.stat().st_mode)
    except OSError:
        # the next write reports that the run is missing
        mode = 0
    # an archive has no x bits: derive those of folders from its r bits
    allowed = mode | (mode & 0o444) >> 2 | stat.S_IRWXU
    with file_permissions(0o777 & ~allowed):
        yield


def encode_path(path: Union[Path, str]) -> bytes:
    """Encode a path for the system; raises FileProblem if it is not a valid file name."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        name = b"\0"
    if b"\0" in name:
        raise FileProblem(f"{str(path)!a}: is not a valid file name")
    return name


def list_parts(path: Path, root: Path) -> Iterator[bytes]:
    """Yield parts of `path` below `root` as bytes; raises FileProblem if outside, or for ".."."""
    parts = path.parts[len(root.parts) :]
    if path.parts[: len(root.parts)] != root.parts or ".." in parts:
        raise FileProblem(f"{path}: is outside {root}")
    return map(encode_path, parts)


def _make_below(folder: int, name: bytes, path: Path) -> None:
    """Make a folder `name` in the folder with this descriptor, unless it exists."""
    try:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
    except OSError as error:
        raise FileProblem(f"{path}: cannot be created: {error.strerror}") from error


def _open_below(folder: int, name: bytes, path: Path) -> int:
    """Open the folder `name` in the folder with this descriptor, without following a link."""
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno in IS_LINK:
            raise FileProblem(
                f"{path}: {os.fsdecode(name)} is a link or not a folder; links in a run directory "
                "are not followed"
            ) from error
        raise
