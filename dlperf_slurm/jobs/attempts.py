"""An attempt's folder -> its starts, and what the attempt is worth: the one judge of all commands.

Each time that the scheduler starts an array task, the start gets a folder `s<number>` of its own
below that of the attempt, so that no start can write over another one's files.
"""

import hashlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from dlperf_slurm.contract.json_files import ContractError
from dlperf_slurm.contract.nodes import describe_unhealthy
from dlperf_slurm.contract.record import OK, OUT_OF_MEMORY, Record
from dlperf_slurm.files.archives import list_names
from dlperf_slurm.jobs.beside_record import NOTHING_BESIDE, Beside
from dlperf_slurm.jobs.gate import UnbelievableError, read_believed
from dlperf_slurm.jobs.manifest import PlannedCase
from dlperf_slurm.jobs.markers import NO_START
from dlperf_slurm.jobs.run_directory import Run, RunTask
from dlperf_slurm.version import __version__


@dataclass(frozen=True)
class Start:
    """One time that the scheduler started an attempt, and its folder."""

    number: int
    path: Path


@dataclass(frozen=True)
class Judgement:
    """What an attempt is worth: a sound record and its times, or why it has none.

    `start` is the one that was judged; None where the attempt has not started. `record` is there
    also if it says how the attempt failed. `problem` is empty if the record is sound; a `problem`
    without a record, "", is that of an attempt without one. `step_seconds` is the array
    [ranks, steps]; None where none were kept. `beside` is what else was written of it.
    """

    start: Optional[Start]
    record: Optional[Record]
    problem: str
    step_seconds: Any = field(default=None, compare=False, repr=False)
    beside: Beside = NOTHING_BESIDE

    @property
    def is_sound(self) -> bool:
        return self.record is not None and not self.problem


def list_starts(attempt_dir: Path, run_dir: Path) -> list[Start]:
    """The starts of an attempt of a run, the newest first."""
    try:
        names = list_names(attempt_dir, run_dir)
    except OSError:
        return []
    numbers = sorted((int(name[1:]) for name in names if re.fullmatch(r"s\d+", name)), reverse=True)
    return [find_start(attempt_dir, number) for number in numbers]


def find_start(attempt_dir: Path, number: int) -> Start:
    """The start of that number, there or not; the attempt's own folder for NO_START."""
    folder = attempt_dir if number == NO_START else attempt_dir / f"s{number}"
    return Start(number, folder)


def print_files(run: Run, planned: PlannedCase, task: RunTask) -> str:
    """A hash that differs once an attempt may be worth something else.

    It is of what was planned, of the names, sizes, times and inodes of its files, of which none is
    opened, and of this version, which judges them.
    """
    attempt_dir = run.path / task.attempt_dir
    starts = list_starts(attempt_dir, run.path)
    stats = [_list_stats(folder) for folder in (attempt_dir, *(start.path for start in starts))]
    text = ascii((__version__, planned, stats))
    return hashlib.blake2s(text.encode(), digest_size=8).hexdigest()


def _list_stats(folder: Path) -> list[tuple[str, int, int, int]]:
    try:
        found = [
            (entry.name, entry.stat(follow_symlinks=False))
            for entry in os.scandir(folder)
            if not entry.is_dir(follow_symlinks=False)
        ]
    except OSError:
        return []
    return sorted((name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in found)


def judge_attempt(run: Run, planned: PlannedCase, task: RunTask) -> Judgement:
    """What an attempt at a planned case is worth: its newest sound start, else its newest one.

    All who count, retry, report or wait ask this one function.
    """
    newest = None
    for start in list_starts(run.path / task.attempt_dir, run.path):
        judgement = judge_start(start, run, planned, task)
        if judgement.is_sound:
            return judgement
        newest = newest or judgement
    return newest or Judgement(None, None, "")


def judge_start(start: Start, run: Run, planned: PlannedCase, task: RunTask) -> Judgement:
    """What one start of an attempt is worth."""
    try:
        believed = read_believed(run.path, run.run_id, planned, task, start.path)
    except FileNotFoundError:
        return Judgement(start, None, "")
    except UnbelievableError as error:
        return Judgement(start, None, f"invalid record: {error}")
    except (ContractError, OSError) as error:
        return Judgement(start, None, f"broken record: {error}")
    problem = _describe_failure(believed.record)
    return Judgement(start, believed.record, problem, believed.step_seconds, believed.beside)


def _describe_failure(record: Record) -> str:
    if record.status == OK:
        return ""
    unhealthy = describe_unhealthy(record)
    if unhealthy:
        return unhealthy
    kind = "out of memory" if record.status == OUT_OF_MEMORY else "failed"
    first_line = record.reason.splitlines()[0] if record.reason else "no reason was recorded"
    measured = f"{record.partial_steps} of {record.case.measured_steps} steps were measured"
    rest = f"; {measured}, and are in no figure" if record.partial_steps else ""
    return f"{kind}: {first_line}{rest}"
