"""Bytes -> files, written atomically or appended; links are not followed."""

import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator, Optional, Union

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.folders import encode_path, open_folder

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
# open for reading too, to inspect the end of the file before appending
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


# a view of a buffer saves a copy of large contents
Content = Union[bytes, memoryview]


def write_file(
    path: Path,
    content: Content,
    root: Optional[Path] = None,
    is_synced: bool = False,
    mode: int = 0o666,
) -> None:
    """Write or replace a file atomically: readers see the old or the new content.

    A link of the same name is replaced, and its target stays unchanged; below `root`, no link to a
    folder is followed. Unless `is_synced`, a crash of the machine within seconds may lose the file.
    `mode` is limited by the umask. Raises FileProblem, which names the file, and the free disk
    space if it is too little.
    """
    with _named_errors(path, content), open_folder(path.parent, root) as folder:
        name = encode_path(path.name)
        partial = _write_partial(folder, name, content, is_synced, mode)
        with _removed_on_error(folder, partial):
            os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
        if is_synced:
            # keeps the new name after a crash; some file systems cannot sync a folder
            with suppress(OSError):
                os.fsync(folder)


def write_once(path: Path, content: bytes, root: Optional[Path] = None) -> bool:
    """Write a file atomically unless one exists; return whether this call wrote it.

    Of several simultaneous calls, one succeeds. Raises FileProblem if writing fails.
    """
    with _named_errors(path, content), open_folder(path.parent, root) as folder:
        name = encode_path(path.name)
        partial = _write_partial(folder, name, content, False, 0o666)
        try:
            os.link(partial, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            return False
        finally:
            os.unlink(partial, dir_fd=folder)
    return True


def remove_file(path: Path, root: Optional[Path] = None) -> None:
    """Remove a file or link if it exists; FileProblem if that fails or the folder is missing."""
    try:
        with open_folder(path.parent, root) as folder, suppress(FileNotFoundError):
            os.unlink(encode_path(path.name), dir_fd=folder)
    except FileProblem:
        raise
    except OSError as error:
        raise FileProblem(f"{path}: cannot be removed: {error.strerror}") from error


@contextmanager
def open_to_append(path: Path, root: Optional[Path] = None, mode: int = 0o666) -> Iterator[int]:
    """Open a regular file for appending or locking, and create it if missing; yield a descriptor.

    Below `root`, no link to a folder is followed; a link in place of the file never is. Raises
    FileProblem, which names the file and the reason.
    """
    try:
        with open_folder(path.parent, root) as folder:
            descriptor = os.open(encode_path(path.name), _APPEND, mode, dir_fd=folder)
    except FileProblem:
        raise
    except OSError as error:
        reason = "is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise FileProblem(f"{path}: cannot be written: {reason}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileProblem(f"{path}: cannot be written: not a regular file")
        # processes that inherit the descriptor expect blocking writes
        os.set_blocking(descriptor, True)
        yield descriptor
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: Content) -> None:
    """Write all bytes, also after partial writes, as on a disk that fills up."""
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]


@contextmanager
def _named_errors(path: Path, content: Content) -> Iterator[None]:
    """Convert an OSError into a FileProblem that names the file, with the space on a full disk."""
    try:
        yield
    except FileProblem:
        raise
    except OSError as error:
        room = ""
        if error.errno in _NO_ROOM:
            disk = os.statvfs(str(path.parent))
            free = disk.f_bavail * disk.f_frsize
            room = f"; needed: {len(content)} bytes, free: {free}"
        raise FileProblem(f"{path}: cannot be written: {error.strerror}{room}") from error


@contextmanager
def _removed_on_error(folder: int, name: bytes) -> Iterator[None]:
    """Remove file `name` in the folder with this descriptor if the context raises an error."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise


def _write_partial(folder: int, name: bytes, content: Content, is_synced: bool, mode: int) -> bytes:
    """Write a temporary file in `folder`, the descriptor of its final folder; return its name."""
    partial = b"." + name[:200] + b"." + os.urandom(6).hex().encode()
    descriptor = os.open(partial, _NEW_FILE, mode, dir_fd=folder)
    with _removed_on_error(folder, partial):
        try:
            write_all(descriptor, content)
            if is_synced:
                os.fsync(descriptor)
        finally:
            # some file systems report a full disk only at close
            os.close(descriptor)
    return partial
