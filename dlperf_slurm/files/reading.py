"""A regular file of limited size -> its bytes, text or JSON."""

import errno
import json
import os
import re
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Iterator, Optional

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.archive_lookup import FILE_LIMIT_BYTES, find_archive
from dlperf_slurm.files.folders import encode_path, open_folder

MIB = 2**20

# for files written by hand, or with one line per array task
TEXT_LIMIT_BYTES = 16 * MIB
# For JSON: a record of 1,000 ranks with the facts of their hosts has about 4 MiB. Parsing may need
# 25 times the size of the file.
JSON_LIMIT_BYTES = 32 * MIB
# for step times: 1,000 ranks with 16,000 steps
ARRAY_LIMIT_BYTES = 128 * MIB

_HALF_PAIR = r"\\u[dD][89a-fA-F]"
_INT64 = 2**63
# as many digits as the largest 64-bit integer has, after _DIGITS has mapped all digits to 0
_LARGE_INTEGER = b"0" * len(str(_INT64))
_DIGITS = bytes(ord("0") if ord("0") <= byte <= ord("9") else ord(" ") for byte in range(256))


@contextmanager
def open_file(
    path: Path, root: Optional[Path] = None, limit: int = FILE_LIMIT_BYTES
) -> Iterator[BinaryIO]:
    """Open a regular file for reading in this context; below `root`, no link is followed.

    If `root` is an archive, the file is one of its members, read into memory, and has at most
    `limit` bytes. Raises FileNotFoundError if it is missing; FileProblem for a folder, pipe or
    device (opening never blocks), and for a link below `root`.
    """
    archive = None if root is None else find_archive(root)
    if archive is not None:
        with archive.open_member(path, limit) as file:
            yield file
        return
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
    if root is None:
        descriptor = os.open(encode_path(path), flags)
    else:
        with open_folder(path.parent, root) as folder:
            descriptor = _open_in(folder, path, flags | os.O_NOFOLLOW)
    # checked on the descriptor, as os.fdopen fails for a folder
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileProblem(f"{path}: is not a regular file")
    except BaseException:
        os.close(descriptor)
        raise
    with os.fdopen(descriptor, "rb") as file:
        yield file


def read_bytes(path: Path, limit: int = TEXT_LIMIT_BYTES, root: Optional[Path] = None) -> bytes:
    """Read a file; raises as `open_file`, and FileProblem for more than `limit` bytes."""
    with open_file(path, root, limit) as file:
        # Python allocates as many bytes as it is asked for
        size = min(file.seek(0, os.SEEK_END), limit)
        file.seek(0)
        content = file.read(size + 1)
        if len(content) > size:
            # the file has grown, or has no size, as in /proc
            content += file.read(limit - size)
    if len(content) > limit:
        raise FileProblem(f"{path}: has more than {limit} bytes, the limit for this file")
    return content


def read_text(path: Path, limit: int = TEXT_LIMIT_BYTES, root: Optional[Path] = None) -> str:
    """Read a UTF-8 file of at most `limit` bytes, with line ends as \\n; raises FileProblem if not.

    `root` is as in `open_file`. Raises FileNotFoundError if the file is missing.
    """
    return decode_text(read_bytes(path, limit, root), str(path))


def decode_text(content: bytes, where: str) -> str:
    """Decode the content of a text file, with line ends as \\n; raises FileProblem if not UTF-8."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"not UTF-8: byte offset {error.start} of the file"
        raise FileProblem(f"{where}:{line}: {problem}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: Path, limit: int = JSON_LIMIT_BYTES, root: Optional[Path] = None) -> Any:
    """Read a JSON file; parameters and errors are those of `read_text` and `parse_json`."""
    return parse_json(read_text(path, limit, root), str(path))


def parse_json(text: str, where: str) -> Any:
    """Parse JSON; an unpaired surrogate, which cannot be encoded, becomes "?".

    `where` names the file in messages. Raises FileProblem for invalid JSON, integers of more than
    64 bits, and nesting that is too deep.
    """
    try:
        # a Python function for each integer is slow, and most files have no long integers
        is_large = _LARGE_INTEGER in text.encode("utf-8", "replace").translate(_DIGITS)
        data = json.loads(text, parse_int=_parse_integer if is_large else None)
        return _replace_half_pairs(data) if "\\u" in text and re.search(_HALF_PAIR, text) else data
    except RecursionError:
        raise FileProblem(f"{where}: not JSON: nested too deeply") from None
    except ValueError as error:
        raise FileProblem(f"{where}: not JSON: {error}") from error


def _parse_integer(digits: str) -> int:
    # -2**63 has 20 characters; int() of thousands of digits would be slow
    if len(digits) > 20 or not -_INT64 <= int(digits) < _INT64:
        raise ValueError(f"{digits[:20]}... is an integer that does not fit into 64 bits")
    return int(digits)


def _replace_half_pairs(value: Any) -> Any:
    """Replace unpaired surrogates, which cannot be encoded, by "?" in all texts of decoded JSON."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_replace_half_pairs(item) for item in value]
    if isinstance(value, dict):
        return {_replace_half_pairs(k): _replace_half_pairs(v) for k, v in value.items()}
    return value


def _open_in(folder: int, path: Path, flags: int) -> int:
    """Open a file in the folder with this descriptor; raises FileProblem for a link."""
    try:
        return os.open(encode_path(path.name), flags, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileProblem(
                f"{path}: is a link; links in a run directory are not followed"
            ) from error
        raise
