"""Values computed from files -> entries of the user's cache directory, and back.

An entry is a file with built-in Python values alone. It contains only data that can be computed
again: it can be deleted at any time, and is ignored if it is damaged, of another user, or made of
other files, by other code or by other versions of Python, pandas or NumPy.
"""

import hashlib
import io
import os
import pickle
import sys
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dlperf_slurm.config.folders import PACKAGE, evict_oldest, find_cache_dir, make_private_dir
from dlperf_slurm.errors import InputError
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.results.footnotes import FootnoteTemplate
from dlperf_slurm.version import __version__

_DIGEST_BYTES = 32
_CODE_SUFFIXES = (".css", ".j2", ".js", ".py", ".toml")
# libraries that results and reports depend on
_LIBRARIES = ("duckdb", "jinja2", "matplotlib", "numpy", "pandas")


def load_entry(kind: str, name: str, made_of: object) -> Any:
    """Load the value that `store_entry` stored; None without a valid entry of one's own.

    An entry is valid if `made_of`, from which the value was computed, is still the same.
    """
    with suppress(OSError, InputError):
        path = find_cache_dir() / kind / name
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            found = file.read()
        os.utime(path)
        if found[:_DIGEST_BYTES] == _digest(made_of, memoryview(found)[_DIGEST_BYTES:]):
            return decode(found, _DIGEST_BYTES)
    return None


def store_entry(kind: str, name: str, made_of: object, value: Any) -> str:
    """Store a value with what it was computed from (`made_of`); return "", or the error message.

    `value` may contain built-in types and FootnoteTemplate alone: `load_entry` raises
    UnpicklingError for others.
    """
    stream = io.BytesIO()
    # reserve space for the digest: adding it later would copy the entry, which may be large
    stream.write(bytes(_DIGEST_BYTES))
    pickle.dump(value, stream, protocol=5)
    content = stream.getbuffer()
    content[:_DIGEST_BYTES] = _digest(made_of, content[_DIGEST_BYTES:])
    try:
        write_file(make_private_dir(find_cache_dir(), kind) / name, content, mode=0o600)
    except (OSError, InputError) as error:
        return str(error)
    return ""


def evict_entries(kind: str, most: int) -> None:
    """Remove the least recently used entries of a kind, down to `most` entries."""
    with suppress(InputError):
        evict_oldest(find_cache_dir() / kind, most)


@cache
def fingerprint_code() -> tuple[object, ...]:
    """Fingerprint the code that makes results and reports: versions, newest modification time.

    The time is included because in a checkout the version does not change with the code. Versions
    are those in the names of metadata folders: even importlib.metadata is slow to import.
    """
    newest = max(
        os.stat(f"{folder}/{name}").st_mtime_ns  # noqa: PTH116
        for folder, _, names in os.walk(PACKAGE)
        for name in names
        if name.endswith(_CODE_SUFFIXES)
    )
    return __version__, newest, sys.version, *map(_find_metadata, _LIBRARIES)


def _find_metadata(package: str) -> list[str]:
    """Return the names of a package's metadata folders, such as ["numpy-2.4.6.dist-info"]."""
    spec = find_spec(package)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return [path.name for folder in folders for path in Path(folder).parent.glob(f"{package}-*")]


def _digest(made_of: object, content: memoryview) -> bytes:
    """Return the digest that begins a cache entry: of its content, and of what that was made of."""
    digest = hashlib.blake2b(ascii(made_of).encode(), digest_size=_DIGEST_BYTES)
    digest.update(content)
    return digest.digest()


def decode(content: bytes, start: int = 0) -> Any:
    """Unpickle built-in types and FootnoteTemplate from `start` on; UnpicklingError for others."""
    stream = io.BytesIO(content)
    stream.seek(start)
    return _Decoder(stream).load()


class _Decoder(pickle.Unpickler):
    """An unpickler that accepts no class but FootnoteTemplate."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) != (FootnoteTemplate.__module__, FootnoteTemplate.__name__):
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a cache entry")
        return FootnoteTemplate
