"""Write files whole or not at all, or append to them; links are not followed."""

import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator, Optional

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.folders import encode_path, open_folder

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
# for reading too: who appends looks at the end
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


def write_file(
    path: Path,
    content: bytes,
    root: Optional[Path] = None,
    is_synced: bool = False,
    mode: int = 0o666,
) -> None:
    """Put a file in its place, in place of one that is there; a reader sees the whole of either.

    A link of that name is replaced, and what it leads to stays as it is; below `root`, no link to
    a folder is followed. What is not synced may be lost when the machine dies in the next seconds.
    `mode` has the permissions that it has at most, less the umask. Raises FileProblem, which names
    the file, and the room when it is too little.
    """
    with _named_errors(path, content), open_folder(path.parent, root) as folder:
        name = encode_path(Path(path.name))
        partial = _write_partial(folder, name, content, is_synced, mode)
        with _removed_on_error(folder, partial):
            os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
        if is_synced:
            _sync_folder(folder)


def write_once(path: Path, content: bytes, root: Optional[Path] = None) -> bool:
    """Put a file in its place, unless there is one; returns whether this call did.

    Of several that try at once one succeeds. Raises as `write_file` does.
    """
    with _named_errors(path, content), open_folder(path.parent, root) as folder:
        name = encode_path(Path(path.name))
        partial = _write_partial(folder, name, content, False, 0o666)
        try:
            os.link(partial, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            return False
        finally:
            os.unlink(partial, dir_fd=folder)
    return True


def remove_file(path: Path, root: Optional[Path] = None) -> None:
    """Remove a file or a link, if it is there; raises FileProblem when that fails."""
    try:
        with open_folder(path.parent, root) as folder, suppress(FileNotFoundError):
            os.unlink(encode_path(Path(path.name)), dir_fd=folder)
    except FileProblem:
        raise
    except OSError as error:
        raise FileProblem(f"{path}: cannot be removed: {error.strerror}") from error


@contextmanager
def open_to_append(path: Path, root: Optional[Path] = None) -> Iterator[int]:
    """Open a regular file, made if it is missing, whose descriptor adds to its end; or is locked.

    Below `root`, no link to a folder is followed; a link of the file's own name never is. Raises
    FileProblem, which names the file and the reason, when it cannot be had.
    """
    try:
        with open_folder(path.parent, root) as folder:
            descriptor = os.open(encode_path(Path(path.name)), _APPEND, 0o666, dir_fd=folder)
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


@contextmanager
def _named_errors(path: Path, content: bytes) -> Iterator[None]:
    """What the system says becomes a FileProblem about this file."""
    try:
        yield
    except FileProblem:
        raise
    except OSError as error:
        room = ""
        if error.errno in _NO_ROOM:
            room = f"; it has {len(content)} bytes, {_find_free_bytes(path.parent)} are free there"
        raise FileProblem(f"{path}: cannot be written: {error.strerror}{room}") from error


@contextmanager
def _removed_on_error(folder: int, name: bytes) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise


def _write_partial(folder: int, name: bytes, content: bytes, is_synced: bool, mode: int) -> bytes:
    """A new file beside its place, whole; returns its name."""
    partial = b"." + name[:200] + b"." + os.urandom(6).hex().encode()
    descriptor = os.open(partial, _NEW_FILE, mode, dir_fd=folder)
    with _removed_on_error(folder, partial):
        try:
            write_all(descriptor, content)
            if is_synced:
                os.fsync(descriptor)
        finally:
            # a full file system may say so only here
            os.close(descriptor)
    return partial


def _sync_folder(folder: int) -> None:
    # some file systems cannot, and have the name on disk already
    with suppress(OSError):
        os.fsync(folder)


def _find_free_bytes(folder: Path) -> int:
    status = os.statvfs(str(folder))
    return status.f_bavail * status.f_frsize
