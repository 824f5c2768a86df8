"""Bytes -> a file that is there whole or as it was before; links are not followed."""

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Optional

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.folders import encode_path, open_folder

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


def write_file(
    path: Path, content: bytes, root: Optional[Path] = None, is_synced: bool = False
) -> None:
    """Put a file in its place, in place of one that is there; a reader sees the whole of either.

    A link of that name is replaced, and what it leads to stays as it is; below `root`, no link to
    a folder is followed. What is not synced may be lost when the machine dies in the next seconds.
    Raises FileProblem, which names the file, and the room when it is too little.
    """
    try:
        with open_folder(path.parent, root) as folder:
            _write_in(folder, encode_path(Path(path.name)), content, is_synced)
    except FileProblem:
        raise
    except OSError as error:
        room = ""
        if error.errno in _NO_ROOM:
            room = f"; it has {len(content)} bytes, {_find_free_bytes(path.parent)} are free there"
        raise FileProblem(f"{path}: cannot be written: {error.strerror}{room}") from error


def _write_in(folder: int, name: bytes, content: bytes, is_synced: bool) -> None:
    partial = b"." + name[:200] + b"." + os.urandom(6).hex().encode()
    descriptor = os.open(partial, _NEW_FILE, 0o666, dir_fd=folder)
    try:
        try:
            remaining = memoryview(content)
            while remaining:
                remaining = remaining[os.write(descriptor, remaining) :]
            if is_synced:
                os.fsync(descriptor)
        finally:
            # a full file system may say so only here
            os.close(descriptor)
        os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial, dir_fd=folder)
        raise
    if is_synced:
        _sync_folder(folder)


def _sync_folder(folder: int) -> None:
    # some file systems cannot, and have the name on disk already
    with suppress(OSError):
        os.fsync(folder)


def _find_free_bytes(folder: Path) -> int:
    status = os.statvfs(str(folder))
    return status.f_bavail * status.f_frsize
