"""What earlier reports of a run found of its cases -> the user's cache, and back.

A repeat is read anew once any of its files is another one, by size, time or inode. The index has
nothing that the run's files do not have: it can be deleted at any time, and an entry that is
damaged, or of another version of the tool, counts as none.
"""

import contextlib
import hashlib
import io
import os
import pickle
from functools import cache
from pathlib import Path
from typing import Any, Optional

from dlperf_slurm.config.folders import PACKAGE, evict_oldest, hash_path, make_cache_dir
from dlperf_slurm.errors import InputError
from dlperf_slurm.files.archives import find_archive
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.jobs.attempts import print_files
from dlperf_slurm.jobs.manifest import PlannedCase
from dlperf_slurm.jobs.run_directory import CASES_FILE, Run
from dlperf_slurm.results.collect import Attempts
from dlperf_slurm.version import __version__

# of runs that have an index; the one that was used longest ago goes first
MOST_RUNS = 100
_DIGEST_BYTES = 32


def print_repeats(attempts: Attempts, case: PlannedCase) -> dict[int, str]:
    """For each repeat a text that differs once a report may find something else of it.

    No file is opened. That of 0 is of the case, which may have no repeats.
    """
    shared = ascii((_print_code(), case, _print_shared(attempts.run.path)))
    of_case = hashlib.blake2b(shared.encode(), digest_size=_DIGEST_BYTES)
    texts = {0: of_case.hexdigest()}
    for repeat in attempts.list_repeats(case):
        known = [
            (
                print_files(attempts.run, case, task),
                task,
                attempts.states.get(task.marker),
                task.group_id in attempts.submitted,
            )
            for task in attempts.tasks.get((case.case_id, repeat), ())
        ]
        of_repeat = of_case.copy()
        of_repeat.update(ascii((repeat, known)).encode())
        texts[repeat] = of_repeat.hexdigest()
    return texts


def _print_shared(path: Path) -> tuple[int, ...]:
    """Size, time and inode of the file that has all cases; of an archive, which changes as a whole.

    Nothing where neither is there.
    """
    try:
        status = (path if find_archive(path) is not None else path / CASES_FILE).stat()
    except FileNotFoundError:
        return ()
    return status.st_size, status.st_mtime_ns, status.st_ino


@cache
def _print_code() -> tuple[object, ...]:
    """The version, and the newest change of a module: of a checkout the version stays the same."""
    return __version__, max(path.stat().st_mtime_ns for path in PACKAGE.rglob("*.py"))


class CaseIndex:
    """The entries of a run's cases, by names of them, each a file of its own."""

    def __init__(self, folder: Optional[Path]) -> None:
        self._folder = folder

    def find(self, name: str, text: str) -> Optional[bytes]:
        """What was kept by a name with this text; None where that is not there, or damaged."""
        with contextlib.suppress(OSError):
            if self._folder is None:
                return None
            kept = self._find_file(name).read_bytes()
            digest, content = kept[:_DIGEST_BYTES], kept[_DIGEST_BYTES:]
            return content if digest == _digest(text, content) else None
        return None

    def keep(self, name: str, text: str, content: bytes) -> None:
        """Keep it in place of what there was; where that cannot be, nothing is kept."""
        with contextlib.suppress(OSError):
            if self._folder is not None:
                write_file(self._find_file(name), _digest(text, content) + content, mode=0o600)

    def _find_file(self, name: str) -> Path:
        assert self._folder is not None
        return self._folder / hashlib.sha256(name.encode()).hexdigest()[:32]


def open_index(run: Run) -> CaseIndex:
    """The index of a run, by its place; one that keeps nothing where there can be no cache."""
    try:
        folder = make_cache_dir("reports", hash_path(run.path))
        os.utime(folder)
    except (OSError, InputError):
        return CaseIndex(None)
    evict_oldest(folder.parent, MOST_RUNS)
    return CaseIndex(folder)


def encode(found: object) -> bytes:
    """What was found as bytes, for another process or for the index."""
    return pickle.dumps(found, protocol=5)


def decode(content: bytes) -> Any:
    """What `encode` was given; of no class but the tool's own."""
    return _Decoder(io.BytesIO(content)).load()


class _Decoder(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if module.startswith("dlperf_slurm.") else None
        if not isinstance(found, type):
            raise pickle.UnpicklingError(f"{module}.{name} is no class of the tool")
        return found


def _digest(text: str, content: bytes) -> bytes:
    return hashlib.blake2b(text.encode() + b"\0" + content, digest_size=_DIGEST_BYTES).digest()
