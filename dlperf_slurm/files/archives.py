"""A path in a run's folder or ZIP archive -> its content.

`RUN.zip/cases/...` reads like `RUN/cases/...`. All members are in one top-level folder of the
archive. Members are read into memory with a size limit, never unpacked to disk; ambiguous or
malicious archives are refused.
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
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Dict, Iterable, Iterator, NamedTuple, Set, Tuple

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.archive_lookup import FILE_LIMIT_BYTES
from dlperf_slurm.files.folders import list_parts

# the digests of all other files, as sha256sum(1) checks them
SUMS_FILE = "SHA256SUMS"
# the symbolic links of the folder and their targets, as the archive itself contains no links
LINKS_FILE = "LINKS.json"
# limit for the central directory; one of a million members has about 100 MiB
LIST_LIMIT_BYTES = 2**28
MEMBERS_LIMIT = 2_000_000
# maximum size of all members together, beside MOST_INFLATED times the size of the archive
INFLATED_BYTES = 2**28
MOST_INFLATED = 100
# more than deflate can add to data that it cannot compress
_ADDED_BYTES = 2**20
# a fixed time for all members, so that archives are reproducible
_TIME = (1980, 1, 1, 0, 0, 0)
# file types that are compressed already, or hardly compressible
STORED_SUFFIXES = (".npy", ".npz", ".parquet", ".pdf", ".png", ".zip")

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_END_BYTES = 22
_ENCRYPTED = 0x1
_NO_NAME = re.compile(r"[\x00-\x1f\x7f\\]|(?:^|/)\.{0,2}(?:/|$)")


class Member(NamedTuple):
    """A member of an archive: its offset, its stored (compressed) and full size, its CRC-32."""

    name: str
    offset: int
    stored_bytes: int
    size_bytes: int
    checksum: int
    is_deflated: bool


class _LimitedFile:
    """A file that limits each read to LIST_LIMIT_BYTES, so that `zipfile` cannot read more."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(
            LIST_LIMIT_BYTES + 1 if size < 0 else min(size, LIST_LIMIT_BYTES + 1)
        )
        if len(content) > LIST_LIMIT_BYTES:
            raise zipfile.BadZipFile("its list of members (central directory) is too large")
        return content

    def seekable(self) -> bool:
        return True


@dataclass(frozen=True)
class Archive:
    """An opened archive: its members by path, and the names in each folder.

    `kept` has the content of files that `open_kept` has read, by path.
    """

    path: Path
    members: Dict[str, Member]
    folders: Dict[str, Set[str]]
    kept: Dict[Path, bytes] = field(default_factory=dict, compare=False, repr=False)

    @contextmanager
    def open_member(self, path: Path, limit: int = FILE_LIMIT_BYTES) -> Iterator[BinaryIO]:
        """Open a member by its path below the archive's path; raises as `reading.open_file`."""
        yield io.BytesIO(self._read(path, limit))

    def open_kept(self, path: Path, limit: int) -> BinaryIO:
        """Open a file, which the first call decompresses into memory; raises as `open_member`."""
        if path not in self.kept:
            self.kept[path] = self._read(path, limit)
        return io.BytesIO(self.kept[path])

    def _read(self, path: Path, limit: int) -> bytes:
        name = self._find_name(path)
        if name in self.folders:
            raise FileProblem(f"{path}: is not a regular file")
        if name not in self.members:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        with self.path.open("rb") as file:
            return read_member(file, self.members[name], limit, str(path))

    def list_names(self, path: Path) -> Set[str]:
        """List the names in a folder below the archive's path; raises FileNotFoundError."""
        names = self.folders.get(self._find_name(path))
        if names is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return names

    def _find_name(self, path: Path) -> str:
        return "/".join(map(os.fsdecode, list_parts(path, self.path)))


# cached until the file changes; a comparison of runs opens two archives
@lru_cache(maxsize=4)
def open_archive(path: str, device: int, inode: int, size_bytes: int, time: float) -> Archive:
    """Open the archive at `path`, from a cache while the other arguments are the same.

    They are those of stat(2). Raises FileProblem if the file is not a valid archive.
    """
    with Path(path).open("rb") as file:
        found = list_members(file, path)
    tops = {name.partition("/")[0] for name in found}
    inflated_bytes = sum(member.size_bytes for member in found.values())
    if inflated_bytes > INFLATED_BYTES + MOST_INFLATED * size_bytes:
        raise FileProblem(
            f"{path}: is not an archive of a run: its members have {inflated_bytes} bytes, more "
            "than the limit"
        )
    if len(tops) != 1 or not all("/" in name for name in found):
        raise FileProblem(f"{path}: is not an archive of a run: its members are not in one folder")
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
        raise FileProblem(f"{path}: its member {strange[:200]!r} is both a file and a folder")
    return Archive(Path(path), members, folders)


def list_members(file: BinaryIO, where: str) -> Dict[str, Member]:
    """List the members of a ZIP file by name, in the order of the file.

    `where` names the file in messages. Raises FileProblem if it is not a ZIP file, or has unsafe or
    duplicate names, links, encrypted or overlapping members, or members compressed by another
    method than deflate.
    """
    try:
        _check_end(file)
        with zipfile.ZipFile(_LimitedFile(file)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, UnicodeError, ValueError, OSError) as error:
        raise FileProblem(f"{where}: cannot be read as a ZIP file: {error}") from error
    if len(entries) > MEMBERS_LIMIT:
        raise FileProblem(f"{where}: has more than {MEMBERS_LIMIT} members")
    members: Dict[str, Member] = {}
    for entry in entries:
        problem = _find_problem(entry) or ("occurs twice" if entry.filename in members else "")
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
    """Read a member; raise FileProblem if it is damaged or has more than `limit` bytes."""
    if member.size_bytes > limit:
        raise FileProblem(f"{where}: has more than {limit} bytes, the limit for this file")
    if member.stored_bytes > limit + _ADDED_BYTES:
        raise FileProblem(f"{where}: is damaged: its contents are larger than their declared size")
    try:
        file.seek(member.offset)
        header = file.read(_LOCAL_HEADER.size)
        signature, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
        if signature != b"PK\x03\x04":
            raise ValueError("the header of a member is missing")
        if file.read(name_bytes) not in (
            member.name.encode(),
            member.name.encode("cp437", "ignore"),
        ):
            raise ValueError("a member has two different names")
        file.seek(extra_bytes, 1)
        content = file.read(member.stored_bytes)
        if member.is_deflated:
            # decompress at most one byte more than the declared size
            content = zlib.decompressobj(-15).decompress(content, member.size_bytes + 1)
    except (struct.error, zlib.error, ValueError) as error:
        raise FileProblem(f"{where}: is damaged: {error}") from error
    if len(content) != member.size_bytes or zlib.crc32(content) != member.checksum:
        raise FileProblem(f"{where}: is damaged: checksum mismatch")
    return content


def make_entry(name: str) -> zipfile.ZipInfo:
    """Make a ZIP entry of a file: mode 0644, a fixed time, compressed unless in STORED_SUFFIXES."""
    entry = zipfile.ZipInfo(name, _TIME)
    is_stored = name.endswith(STORED_SUFFIXES)
    entry.compress_type = zipfile.ZIP_STORED if is_stored else zipfile.ZIP_DEFLATED
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    return entry


def write_members(file: BinaryIO, contents: Iterable[Tuple[str, bytes]]) -> None:
    """Write a ZIP file with these members, as (name, content)."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in contents:
            archive.writestr(make_entry(name), content)


def _check_end(file: BinaryIO) -> None:
    """Raise BadZipFile unless a file ends with the end record of a ZIP file without a comment.

    Otherwise `zipfile` could open a ZIP file nested inside a truncated archive.
    """
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - _END_BYTES))
    end = file.read(_END_BYTES)
    if not (end.startswith(b"PK\5\6") and end.endswith(b"\0\0")):
        raise zipfile.BadZipFile("the end of the archive is missing")


def _find_problem(entry: zipfile.ZipInfo) -> str:
    """Return why a member of an archive is refused, or '' for a plain file or folder."""
    if _NO_NAME.search(entry.filename[:-1] if entry.is_dir() else entry.filename):
        return "has a path outside of its folder"
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFDIR if entry.is_dir() else stat.S_IFREG):
        return "is not a regular file"
    if entry.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is not compressed with deflate"
    return ""


def _refuse_overlaps(members: Dict[str, Member], where: str) -> None:
    """Raise FileProblem if members overlap, as in a ZIP bomb."""
    end = 0
    for name, member in sorted(members.items(), key=lambda item: item[1].offset):
        if member.offset < end:
            raise FileProblem(f"{where}: its member {name[:200]!r} overlaps another member")
        end = member.offset + _LOCAL_HEADER.size + member.stored_bytes
