"""A folder that was closed into one ZIP file -> its files and folders, by paths below that file.

`RUN.zip/cases/...` is then what `RUN/cases/...` is in a folder. All members lie in one folder of
the file, as those of a run do. Nothing is unpacked, and nothing of it is written.
"""

import errno
import io
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Dict, Iterator, Optional, Set

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.folders import list_parts
from dlperf_slurm.files.zips import Member, list_members, read_member

ARCHIVE_SUFFIX = ".zip"
# the digests of all other files, as sha256sum(1) checks them
SUMS_FILE = "SHA256SUMS"
# the links of the folder, and where they lead: none is a link in the archive
LINKS_FILE = "LINKS.json"
# of a file in an archive: it is read whole
FILE_LIMIT_BYTES = 2**29


@dataclass(frozen=True)
class Archive:
    """The members of an archive by their paths in it, and the names in each of its folders."""

    path: Path
    members: Dict[str, Member]
    folders: Dict[str, Set[str]]

    @contextmanager
    def open_member(self, path: Path) -> Iterator[BinaryIO]:
        """Open a file by its path below the archive's; raises as `reading.open_file` does."""
        name = self._find_name(path)
        if name in self.folders:
            raise FileProblem(f"{path}: is no regular file")
        if name not in self.members:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        with self.path.open("rb") as file:
            content = read_member(file, self.members[name], FILE_LIMIT_BYTES, str(path))
        yield io.BytesIO(content)

    def list_names(self, path: Path) -> Set[str]:
        """The names in a folder; raises FileNotFoundError where there is none."""
        names = self.folders.get(self._find_name(path))
        if names is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return names

    def _find_name(self, path: Path) -> str:
        return "/".join(map(os.fsdecode, list_parts(path, self.path)))


def find_archive(root: Path) -> Optional[Archive]:
    """The archive that a path leads to; None for a folder, or what is not called as one.

    Raises FileProblem, which names it, for a file that is called so and cannot be used.
    """
    if root.suffix != ARCHIVE_SUFFIX:
        return None
    try:
        status = root.stat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return _open_archive(str(root), status.st_dev, status.st_ino, status.st_size, status.st_mtime)


# its list is read once, until it is another file; a comparison has two
@lru_cache(maxsize=4)
def _open_archive(path: str, device: int, inode: int, size_bytes: int, time: float) -> Archive:
    with Path(path).open("rb") as file:
        found = list_members(file, path)
    tops = {name.partition("/")[0] for name in found}
    if len(tops) != 1 or not all("/" in name for name in found):
        raise FileProblem(f"{path}: is no archive of a run: its members are not in one folder")
    members = {
        name.partition("/")[2]: member for name, member in found.items() if not name.endswith("/")
    }
    folders: Dict[str, Set[str]] = {"": set()}
    for name in members:
        while name:
            name_above, _, own_name = name.rpartition("/")
            folders.setdefault(name_above, set()).add(own_name)
            name = name_above
    if folders.keys() & members.keys():
        strange = min(folders.keys() & members.keys())
        raise FileProblem(f"{path}: its member {strange[:200]!r} is a file and a folder")
    return Archive(Path(path), members, folders)
