"""What earlier reports of a run found of its cases -> the user's cache, and back.

A case is read anew once any of its files is another one, by size, time or inode. The index has
nothing that the run's files do not have: it can be deleted at any time, and an entry that is
damaged, or of another version of the tool, counts as none.
"""

import contextlib
import hashlib
import io
import os
import pickle
import shutil
from functools import cache
from pathlib import Path
from typing import Any, Optional

from dlperf_slurm.config.folders import PACKAGE, find_user_dir
from dlperf_slurm.errors import InputError
from dlperf_slurm.files.archives import find_archive
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.jobs.attempts import print_files
from dlperf_slurm.jobs.manifest import PlannedCase
from dlperf_slurm.jobs.run_directory import CASES_FILE, Run
from dlperf_slurm.results.collect import Attempts, CaseOutcomes
from dlperf_slurm.version import __version__

# of runs that have an index; the one that was used longest ago goes first
MOST_RUNS = 100
_DIGEST_BYTES = 32


def print_case(attempts: Attempts, case: PlannedCase) -> str:
    """A text that differs once a report may find something else of a case; no file is opened."""
    tasks = [
        (task, attempts.states.get(task.marker), task.group_id in attempts.submitted)
        for repeat in attempts.list_repeats(case)
        for task in attempts.tasks.get((case.case_id, repeat), ())
    ]
    known = [(print_files(attempts.run, case, task), task, *told) for task, *told in tasks]
    repeats = attempts.list_repeats(case)
    text = ascii((_print_code(), case, repeats, known, _print_shared(attempts.run.path)))
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _print_shared(path: Path) -> tuple[int, ...]:
    """Size, time and inode of the file that has all cases; of an archive, which changes as a whole.

    Nothing where neither is there, as in runs of earlier versions.
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
    """The entries of a run's cases, each a file of its own."""

    def __init__(self, folder: Optional[Path]) -> None:
        self._folder = folder

    def find(self, case_id: str, text: str) -> Optional[bytes]:
        """What was kept of a case with this text; None where that is not there, or damaged."""
        with contextlib.suppress(OSError):
            if self._folder is None:
                return None
            kept = self._find_file(case_id).read_bytes()
            digest, content = kept[:_DIGEST_BYTES], kept[_DIGEST_BYTES:]
            return content if digest == _digest(text, content) else None
        return None

    def keep(self, case_id: str, text: str, content: bytes) -> None:
        """Keep it in place of what there was; where that cannot be, nothing is kept."""
        with contextlib.suppress(OSError):
            if self._folder is not None:
                write_file(self._find_file(case_id), _digest(text, content) + content, mode=0o600)

    def _find_file(self, case_id: str) -> Path:
        assert self._folder is not None
        return self._folder / hashlib.sha256(case_id.encode()).hexdigest()[:32]


def open_index(run: Run) -> CaseIndex:
    """The index of a run, by its place; one that keeps nothing where there can be no cache."""
    try:
        above = find_user_dir("XDG_CACHE_HOME", "~/.cache") / "dlperf-slurm" / "reports"
        folder = above / hashlib.sha256(os.fsencode(run.path.resolve())).hexdigest()[:32]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.utime(folder)
        kept = sorted(above.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    except (OSError, InputError):
        return CaseIndex(None)
    for old in kept[:-MOST_RUNS]:
        shutil.rmtree(old, ignore_errors=True)
    return CaseIndex(folder)


def encode_case(outcomes: CaseOutcomes) -> bytes:
    """A case as bytes, for another process or for the index."""
    return pickle.dumps(outcomes, protocol=5)


def decode_case(content: bytes) -> CaseOutcomes:
    """What `encode_case` was given; of no class but the tool's own."""
    outcomes: CaseOutcomes = _Decoder(io.BytesIO(content)).load()
    return outcomes


class _Decoder(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if module.startswith("dlperf_slurm.") else None
        if not isinstance(found, type):
            raise pickle.UnpicklingError(f"{module}.{name} is no class of the tool")
        return found


def _digest(text: str, content: bytes) -> bytes:
    return hashlib.blake2b(text.encode() + b"\0" + content, digest_size=_DIGEST_BYTES).digest()
