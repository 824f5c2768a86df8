"""What a job script leaves -> the markers of its starts, its claim, its last words."""

import os
import re
import sys
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Optional

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.archives import list_names
from dlperf_slurm.files.reading import open_file, read_json, read_text

MARKERS_DIR = "markers"
# the file in the directory of an attempt with what it wrote to its standard error
ERROR_FILE = "err"
MAX_ERROR_CHARACTERS = 200
# the link in the directory of an attempt that names the array job it belongs to
CLAIM_FILE = "claim"
# how the only line of a script's log begins, where nothing went wrong before the ranks
LOG_WORDS = "what this array task prints is in"
# of an array task that shares its job: the job went on to the next
OVER = "over"
# the kinds of markers that belong to no start
OF_NO_START = frozenset(("killed", OVER))
# in place of a start's number: the job script ended before the start had a folder
NO_START = -1
# "2n8g-try2.17.s0.finished"; "2n8g-try2.17.ended" without a start
_MARKER = re.compile(
    r"(?P<task>.+?\.\d+)(?:\.s(?P<start>\d+))?\.(?P<kind>started|ended|finished|killed|over)"
)
# what the one file of a start that has run to its end stands for
_FINISHED = ("started", "ended")
MARKER_LIMIT_BYTES = 2**20
# the markers of an array task: the numbers of its starts, and of what kind each is
Seen = frozenset[tuple[int, str]]
NOTHING_SEEN: Seen = frozenset()
# in a `killed` marker: the array task was not begun, as the time of its run was over
SKIPPED = "SKIPPED"


@dataclass(frozen=True)
class Marker:
    """What a job script wrote when it started or ended."""

    job_id: str
    time: str
    nodes: str
    exit_code: int


def read_last_error(attempt_dir: Path, run_dir: Path) -> str:
    """The last line that an attempt wrote to its standard error, cut to what fits a message."""
    try:
        with open_file(attempt_dir / ERROR_FILE, run_dir) as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 4 * MAX_ERROR_CHARACTERS))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    written = [line.strip() for line in lines if line.strip()]
    return written[-1][:MAX_ERROR_CHARACTERS] if written else ""


def read_hold(run_dir: Path, group_id: str) -> str:
    """The failure of a launch for which the group's job script held the others; empty if none."""
    try:
        return str((run_dir / MARKERS_DIR / f"{group_id}.held").readlink())
    except OSError:
        return ""


def read_refusal(run_dir: Path, task: str, start: int) -> str:
    """Why an array task could write no marker; empty where it did not say so.

    It may not have got so far that its start had a number.
    """
    for name in (f"{task}.s{start}", task):
        with suppress(OSError):
            return str((run_dir / MARKERS_DIR / f"{name}.refused").readlink())
    return ""


def forget_hold(run_dir: Path, group_id: str) -> None:
    """Have the group's job script count failures of launches anew; raises OSError."""
    folder = run_dir / MARKERS_DIR
    for path in (folder / f"{group_id}.held", *folder.glob(f"{group_id}.*.unlaunched")):
        path.unlink(missing_ok=True)


def list_markers(run_dir: Path) -> dict[str, dict[int, set[str]]]:
    """The kinds of markers that are there, by the marker of their array task and their start."""
    found: dict[str, dict[int, set[str]]] = {}
    for name in _list_names(run_dir):
        task, number, kinds = _split_name(name)
        if task:
            found.setdefault(task, {}).setdefault(number, set()).update(kinds)
    return found


def _list_names(run_dir: Path) -> list[str]:
    try:
        return list_names(run_dir / MARKERS_DIR, run_dir)
    except FileNotFoundError:
        return []


def _split_name(name: str) -> tuple[str, int, tuple[str, ...]]:
    """The task, start and kinds that a file's name tells of; the task of no marker is ""."""
    match = _MARKER.fullmatch(name)
    if match is None:
        return "", NO_START, ()
    task, start, kind = match.group("task", "start", "kind")
    kinds = _FINISHED if kind == "finished" else (sys.intern(kind),)
    return task, NO_START if start is None else int(start), kinds


class MarkerFolder:
    """The markers of a run, of which a later look splits only the names that have come since."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._names: set[str] = set()
        self._seen: dict[str, Seen] = {}

    def read(self) -> Mapping[str, Seen]:
        """The markers that are there now, by the array task's; it lists one folder."""
        names = set(_list_names(self._run_dir))
        for name in self._names - names:
            task, number, kinds = _split_name(name)
            if task and not _is_in_other(name, names):
                gone = {(number, kind) for kind in kinds}
                self._seen[task] = self._seen.get(task, NOTHING_SEEN) - gone
        for name in names - self._names:
            task, number, kinds = _split_name(name)
            if task:
                self._seen[task] = _add(self._seen.get(task, NOTHING_SEEN), number, kinds)
        self._names = names
        return self._seen


def _is_in_other(name: str, names: Set[str]) -> bool:
    """Whether a marker that is gone is told of by that of the start's end."""
    stem, _, kind = name.rpartition(".")
    return kind in _FINISHED and f"{stem}.finished" in names


@lru_cache(maxsize=4096)
def _add(seen: Seen, start: int, kinds: tuple[str, ...]) -> Seen:
    """One more marker; most array tasks have the same ones."""
    return seen | {(start, kind) for kind in kinds}


def read_marker(run_dir: Path, task: str, kind: str, start: int = NO_START) -> Optional[Marker]:
    """What tells that one of a task's starts `started` or `ended`, if it is there and whole.

    `task` is what the names of its markers begin with.
    """
    name = task if start == NO_START else f"{task}.s{start}"
    for found, time in ((kind, "time"), ("finished", "begun" if kind == "started" else "time")):
        with suppress(OSError, KeyError, TypeError):
            path = run_dir / MARKERS_DIR / f"{name}.{found}"
            data = read_json(path, MARKER_LIMIT_BYTES, root=run_dir)
            return Marker(data["job_id"], data[time], data["nodes"], data["exit_code"])
    return None


def read_killed(run_dir: Path, task: str) -> str:
    """What ended an array task of this machine before its time; raises FileProblem without one."""
    path = run_dir / MARKERS_DIR / f"{task}.killed"
    return read_text(path, MARKER_LIMIT_BYTES, root=run_dir).strip()[:80]


def list_skipped(run_dir: Path) -> set[str]:
    """The markers of the array tasks for which their run had no time."""
    killed = {
        task
        for task, starts in list_markers(run_dir).items()
        if any("killed" in kinds for kinds in starts.values())
    }
    found = set()
    for task in killed:
        with suppress(FileProblem):
            if read_killed(run_dir, task) == SKIPPED:
                found.add(task)
    return found


def read_claim(attempt_dir: Path) -> Optional[str]:
    """The id of the array job that owns an attempt; None where none has come to it yet."""
    try:
        return str((attempt_dir / CLAIM_FILE).readlink())
    except OSError:
        return None
