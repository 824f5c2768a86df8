"""Read a run from its folder, or from the one ZIP file that the folder was closed into.

`RUN.zip/cases/...` is then what `RUN/cases/...` is in a folder. All members lie in one folder of
the file, as those of a run do. Members are read whole, with a limit; nothing is unpacked to a file,
and what might lead astray is refused.
"""

import errno
import io
import os
import re
import stat
import struct
import zipfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Dict, Iterable, Iterator, NamedTuple, Optional, Set, Tuple

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.folders import list_parts

ARCHIVE_SUFFIX = ".zip"
# the digests of all other files, as sha256sum(1) checks them
SUMS_FILE = "SHA256SUMS"
# the links of the folder, and where they lead: none is a link in the archive
LINKS_FILE = "LINKS.json"
# of a file in an archive: it is read whole
FILE_LIMIT_BYTES = 2**29
# a list of a million members has some 100 MiB
LIST_LIMIT_BYTES = 2**28
MEMBERS_LIMIT = 2_000_000
# what deflate may add to bytes that it cannot make fewer
_ADDED_BYTES = 2**20
# all times in it are the same, so that the same members are the same bytes
_TIME = (1980, 1, 1, 0, 0, 0)
# what is compressed already, or is hardly smaller for it
STORED_SUFFIXES = (".npy", ".npz", ".parquet", ".pdf", ".png", ".zip")

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_END_BYTES = 22
_ENCRYPTED = 0x1
_NO_NAME = re.compile(r"[\x00-\x1f\x7f\\]|(?:^|/)\.{0,2}(?:/|$)")


class Member(NamedTuple):
    """Where a member lies in its file, and how large it is there and when it is read."""

    name: str
    offset: int
    stored_bytes: int
    size_bytes: int
    checksum: int
    is_deflated: bool


class _LimitedFile:
    """A file of which nobody reads more at a time than a list of members may have."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(
            LIST_LIMIT_BYTES + 1 if size < 0 else min(size, LIST_LIMIT_BYTES + 1)
        )
        if len(content) > LIST_LIMIT_BYTES:
            raise zipfile.BadZipFile("its list of members is too long")
        return content

    def seekable(self) -> bool:
        return True


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


def list_members(file: BinaryIO, where: str) -> Dict[str, Member]:
    """The members of a ZIP file by name, in its order.

    Raises FileProblem for what is no such file, and for names that lead out of it, names that are
    there twice, links, encryption, members that share bytes, and kinds of compression but deflate.
    """
    try:
        _check_end(file)
        with zipfile.ZipFile(_LimitedFile(file)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, UnicodeError, ValueError, OSError) as error:
        raise FileProblem(f"{where}: is no ZIP file that can be read: {error}") from error
    if len(entries) > MEMBERS_LIMIT:
        raise FileProblem(f"{where}: has more than {MEMBERS_LIMIT} members")
    members: Dict[str, Member] = {}
    for entry in entries:
        problem = _find_problem(entry) or ("is there twice" if entry.filename in members else "")
        if problem:
            raise FileProblem(f"{where}: its member {entry.filename[:200]!r} {problem}")
        members[entry.filename] = Member(
            entry.filename,
            entry.header_offset,
            entry.compress_size,
            entry.file_size,
            entry.CRC,
            entry.compress_type == zipfile.ZIP_DEFLATED,
        )
    _refuse_overlaps(members, where)
    return members


def read_member(file: BinaryIO, member: Member, limit: int, where: str) -> bytes:
    """The content of a member of up to `limit` bytes; FileProblem for more, and for damage."""
    if member.size_bytes > limit:
        raise FileProblem(f"{where}: has more than {limit} bytes, the most that such a file has")
    if member.stored_bytes > limit + _ADDED_BYTES:
        raise FileProblem(f"{where}: is damaged: it takes more room than it has bytes")
    try:
        file.seek(member.offset)
        header = file.read(_LOCAL_HEADER.size)
        signature, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
        if signature != b"PK\x03\x04":
            raise ValueError("it does not begin as a member does")
        if file.read(name_bytes) not in (
            member.name.encode(),
            member.name.encode("cp437", "ignore"),
        ):
            raise ValueError("it has two names")
        file.seek(extra_bytes, 1)
        content = file.read(member.stored_bytes)
        if member.is_deflated:
            # not a byte more than it says is made of it
            content = zlib.decompressobj(-15).decompress(content, member.size_bytes + 1)
    except (struct.error, zlib.error, ValueError) as error:
        raise FileProblem(f"{where}: is damaged: {error}") from error
    if len(content) != member.size_bytes or zlib.crc32(content) != member.checksum:
        raise FileProblem(f"{where}: is damaged: it is not what its checksum is of")
    return content


def make_entry(name: str) -> zipfile.ZipInfo:
    """What a member of that name is written with, as a plain file that all may read."""
    entry = zipfile.ZipInfo(name, _TIME)
    is_stored = name.endswith(STORED_SUFFIXES)
    entry.compress_type = zipfile.ZIP_STORED if is_stored else zipfile.ZIP_DEFLATED
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    return entry


def write_members(file: BinaryIO, contents: Iterable[Tuple[str, bytes]]) -> None:
    """Write a ZIP file of members by name."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in contents:
            archive.writestr(make_entry(name), content)


def _check_end(file: BinaryIO) -> None:
    """Raise BadZipFile where the last bytes are not those of a ZIP file without a comment.

    A file that was cut short may have a whole ZIP file among its last members.
    """
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - _END_BYTES))
    end = file.read(_END_BYTES)
    if not (end.startswith(b"PK\5\6") and end.endswith(b"\0\0")):
        raise zipfile.BadZipFile("it has not the end of one")


def _find_problem(entry: zipfile.ZipInfo) -> str:
    """Why a member is not to be read; empty for a plain file or folder."""
    if _NO_NAME.search(entry.filename[:-1] if entry.is_dir() else entry.filename):
        return "is no name below its folder"
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFDIR if entry.is_dir() else stat.S_IFREG):
        return "is a link, or no regular file"
    if entry.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is compressed in another way than deflate"
    return ""


def _refuse_overlaps(members: Dict[str, Member], where: str) -> None:
    """FileProblem where bytes are of two members, as in a file that grows without end."""
    end = 0
    for name, member in sorted(members.items(), key=lambda item: item[1].offset):
        if member.offset < end:
            raise FileProblem(f"{where}: its member {name[:200]!r} shares bytes with another one")
        end = member.offset + _LOCAL_HEADER.size + member.stored_bytes
