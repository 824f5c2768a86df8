"""An attempt's folder -> its starts, and whether it has a valid record; used by all commands.

An attempt is one array task: the first of a repeat, or a retry. A start is one execution of its job
script: the first, or one after a requeue. Each has a folder `s<number>` (from 0) of its own below
the attempt's, so that no start overwrites the files of another.
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from dlperf_slurm.files.archive_lookup import list_names
from dlperf_slurm.jobs.manifest import PlannedCase
from dlperf_slurm.jobs.markers import NO_START
from dlperf_slurm.jobs.run_directory import Run, RunTask
from dlperf_slurm.version import __version__

if TYPE_CHECKING:
    from dlperf_slurm.contract.host_noise import NoiseReport
    from dlperf_slurm.contract.peaks import Peaks
    from dlperf_slurm.contract.record import Record


class Start(NamedTuple):
    """One execution of an attempt's job script, its number (from 0), and its folder."""

    number: int
    path: Path


@dataclass(frozen=True)
class Sidecars:
    """The contents of the sidecar files of a record; None for each file that was not written.

    `token_seconds` is the array [ranks, steps, tokens] of text generation.
    """

    noise: "Optional[NoiseReport]" = None
    peaks: "Optional[Peaks]" = None
    token_seconds: Any = field(default=None, compare=False, repr=False)


NO_SIDECARS = Sidecars()


@dataclass(frozen=True)
class AttemptValidity:
    """Whether an attempt has a valid record: the record with its step times, or the reason against.

    `start` is the execution of the job script that was validated; None if there was none. `record`
    may also be the record of a failure. `problem` says why the record is not valid; it is empty for
    a valid record and if no record was written. `step_seconds` is the array [ranks, steps]; None if
    step times were not recorded. `sidecars` has the contents of the sidecar files.
    """

    start: Optional[Start]
    record: "Optional[Record]"
    problem: str
    step_seconds: Any = field(default=None, compare=False, repr=False)
    sidecars: Sidecars = NO_SIDECARS

    @property
    def is_valid(self) -> bool:
        return self.record is not None and not self.problem


def list_starts(attempt_dir: Path, run_dir: Path) -> list[Start]:
    """List the executions of an attempt's job script that have a folder, newest first."""
    try:
        names = list_names(attempt_dir, run_dir)
    except OSError:
        return []
    numbers = sorted((int(name[1:]) for name in names if re.fullmatch(r"s\d+", name)), reverse=True)
    return [find_start(attempt_dir, number) for number in numbers]


def find_start(attempt_dir: Path, number: int) -> Start:
    """Return the execution of a job script with this number: its folder, which need not exist.

    With NO_START, for an attempt without any, the folder is that of the attempt.
    """
    folder = attempt_dir if number == NO_START else attempt_dir / f"s{number}"
    return Start(number, folder)


def fingerprint_attempt(run: Run, planned: PlannedCase, task: RunTask) -> str:
    """Return a hash of an attempt, so that its cached validation can be reused while unchanged.

    The hash covers the planned case, the names, sizes, times and inodes of the files (none is
    opened), and the version of this tool.
    """
    import hashlib

    attempt_dir = run.path / task.attempt_dir
    starts = list_starts(attempt_dir, run.path)
    stats = [_list_stats(folder) for folder in (attempt_dir, *(start.path for start in starts))]
    text = ascii((__version__, planned, stats))
    return hashlib.blake2s(text.encode(), digest_size=8).hexdigest()


def _list_stats(folder: Path) -> list[tuple[str, int, int, int]]:
    """List name, size, mtime in ns and inode of a folder's files; none if it is unreadable."""
    try:
        found = [
            (entry.name, entry.stat(follow_symlinks=False))
            for entry in os.scandir(folder)
            if not entry.is_dir(follow_symlinks=False)
        ]
    except OSError:
        return []
    return sorted((name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in found)


def validate_attempt(run: Run, planned: PlannedCase, task: RunTask) -> AttemptValidity:
    """Return the newest valid record of an attempt, or else the result of its newest start.

    A start is one execution of the job script. The result has the problem of the start's record, or
    neither record nor problem if there is none. `planned` is the attempt's case in the manifest.
    """
    newest = None
    for start in list_starts(run.path / task.attempt_dir, run.path):
        judgement = validate_start(start, run, planned, task)
        if judgement.is_valid:
            return judgement
        newest = newest or judgement
    return newest or AttemptValidity(None, None, "")


def validate_start(start: Start, run: Run, planned: PlannedCase, task: RunTask) -> AttemptValidity:
    """Return the valid record of one execution of the job script, or its problem, or neither."""
    # most commands read no record
    from dlperf_slurm.jobs.record_validation import InvalidRecordError, read_valid_record

    try:
        return read_valid_record(run.path, run.run_id, planned, task, start)
    except FileNotFoundError:
        return AttemptValidity(start, None, "")
    except InvalidRecordError as error:
        return AttemptValidity(start, None, f"invalid record: {error}")
    except OSError as error:
        # reports name case and repeat, and are sent to people who have no such folder
        words = str(error).replace(f"{start.path}/", "")
        return AttemptValidity(start, None, f"broken record: {words}")
