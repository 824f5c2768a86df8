"""Files that a job script leaves -> start and end markers, claims, refusals, last error line.

A start is one execution of an array task's script: the first, or one after a requeue. A marker is a
file that says what happened to a task, such as "2n8g.17.s0.started": group, array task, number of
the start (none for some), kind. Where functions take a `task`, it is "2n8g.17".
"""

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Optional

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.archive_lookup import list_names
from dlperf_slurm.files.reading import open_file, read_json, read_text

MARKERS_DIR = "markers"
# the file in the directory of an attempt with its standard error
ERROR_FILE = "err"
MAX_ERROR_CHARACTERS = 200
# the link in the directory of an attempt that names the array job it belongs to
CLAIM_FILE = "claim"
# the beginning of the only line in a script's log if nothing fails before the ranks start
LOG_WORDS = "output of this array task:"
# marker kind: the job that runs several array tasks went on to the next one
OVER = "over"
# the kinds of markers that belong to no start
OF_NO_START = frozenset(("killed", OVER))
# in place of a start number: the job script ended before the start had a folder
NO_START = -1
# "2n8g-try2.17.s0.finished"; "2n8g-try2.17.finished" without a start
_MARKER = re.compile(
    r"(?P<task>.+?\.\d+)(?:\.s(?P<start>\d+))?\.(?P<kind>started|finished|killed|over)"
)
# what a `finished` marker says of its start
_FINISHED = ("started", "ended")
MARKER_LIMIT_BYTES = 2**20
# the markers of an array task: (start number, kind)
MarkerState = frozenset[tuple[int, str]]
NO_MARKERS: MarkerState = frozenset()
# text of a `killed` marker: the array task was not started because the run's time was over
SKIPPED = "SKIPPED"


class Marker(NamedTuple):
    """The content of a marker, which the job script writes when it starts or ends."""

    job_id: str
    time: str
    nodes: str
    exit_code: int


def read_last_error(attempt_dir: Path, run_dir: Path) -> str:
    """Read the last line of standard error that one execution of a job script left; "" for none.

    `attempt_dir` may also be that of the execution. The line is cut after MAX_ERROR_CHARACTERS, and
    has no "SCRIPT: line 7: " of bash before its message.
    """
    try:
        with open_file(attempt_dir / ERROR_FILE, run_dir) as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 4 * MAX_ERROR_CHARACTERS))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    # mpirun of Open MPI ends a message with a NUL
    written = list(filter(None, (line.replace("\0", "").strip() for line in lines)))
    # bash's last words after "cannot execute binary file: Exec format error"
    written = [line for line in written if not line.endswith(": Success")] or written
    last = re.sub(r"^\S+: line \d+: ", "", written[-1]) if written else ""
    return last[:MAX_ERROR_CHARACTERS]


def read_hold(run_dir: Path, group_id: str) -> str:
    """Return the launch error for which a job script held its array (`scontrol hold`), or ""."""
    try:
        return str((run_dir / MARKERS_DIR / f"{group_id}.held").readlink())
    except OSError:
        return ""


def read_refusal(run_dir: Path, task: str, start: int) -> str:
    """Return why a job script could not write its markers, or '' if it could.

    `task` is `RunTask.marker`, such as "2n8g.17"; `start` is the number of one execution of its job
    script. A script that failed before it got a number has left a file without one.
    """
    for name in (f"{task}.s{start}", task):
        with suppress(OSError):
            return str((run_dir / MARKERS_DIR / f"{name}.refused").readlink())
    return ""


def forget_hold(run_dir: Path, group_id: str) -> None:
    """Remove the markers that a group was held, and of its failed launches; raises OSError."""
    folder = run_dir / MARKERS_DIR
    for path in (folder / f"{group_id}.held", *folder.glob(f"{group_id}.*.unlaunched")):
        path.unlink(missing_ok=True)


def _list_names(run_dir: Path) -> list[str]:
    try:
        return list_names(run_dir / MARKERS_DIR, run_dir)
    except FileNotFoundError:
        return []


def _split_name(name: str) -> tuple[str, int, tuple[str, ...]]:
    """Split "2n8g.17.s0.started" into ("2n8g.17", 0, ("started",)); the task is '' if invalid."""
    match = _MARKER.fullmatch(name)
    if match is None:
        return "", NO_START, ()
    task, start, kind = match.group("task", "start", "kind")
    kinds = _FINISHED if kind == "finished" else (sys.intern(kind),)
    return task, NO_START if start is None else int(start), kinds


class MarkerFolder:
    """The markers of a run, read incrementally: each read parses only new file names."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._names: set[str] = set()
        self._seen: dict[str, MarkerState] = {}

    def read(self) -> Mapping[str, MarkerState]:
        """Return the (start number, kind) of each marker, by array task such as "2n8g.17"."""
        names = set(_list_names(self._run_dir))
        for name in self._names - names:
            task, number, kinds = _split_name(name)
            stem, _, kind = name.rpartition(".")
            # a `finished` marker replaces the others of its start
            is_replaced = kind in _FINISHED and f"{stem}.finished" in names
            if task and not is_replaced:
                gone = {(number, kind) for kind in kinds}
                self._seen[task] = self._seen.get(task, NO_MARKERS) - gone
        for name in names - self._names:
            task, number, kinds = _split_name(name)
            if task:
                self._seen[task] = _add(self._seen.get(task, NO_MARKERS), number, kinds)
        self._names = names
        return self._seen


def list_markers(run_dir: Path) -> Mapping[str, MarkerState]:
    """Return the (start number, kind) of each marker, by array task such as "2n8g.17"."""
    return MarkerFolder(run_dir).read()


@lru_cache(maxsize=4096)
def _add(seen: MarkerState, start: int, kinds: tuple[str, ...]) -> MarkerState:
    """Add the `kinds` of one start to a task's markers; cached, as most tasks have the same."""
    return seen | {(start, kind) for kind in kinds}


def read_marker(run_dir: Path, task: str, kind: str, start: int = NO_START) -> Optional[Marker]:
    """Read the marker file of `kind` "started" or "ended"; None if it is missing or incomplete.

    A marker "finished" stands for both, and is read first. `task` is `RunTask.marker`, such as
    "2n8g.17"; `start` is the number of one execution of its job script, NO_START if the script
    ended before the start had a folder. The result has job id, time, nodes and exit code.
    """
    name = task if start == NO_START else f"{task}.s{start}"
    for found in ("finished", kind):
        with suppress(OSError, KeyError, TypeError):
            path = run_dir / MARKERS_DIR / f"{name}.{found}"
            data = read_json(path, MARKER_LIMIT_BYTES, root=run_dir)
            time = data["begun" if kind == "started" else "time"]
            return Marker(data["job_id"], time, data["nodes"], data["exit_code"])
    return None


def read_killed(run_dir: Path, task: str) -> str:
    """Return why a task was ended early or not started: TIMEOUT, CANCELLED or SKIPPED.

    SKIPPED: the run's time was used up. `task` is `RunTask.marker` ("2n8g.17"). Raises OSError for
    a missing or unreadable marker.
    """
    path = run_dir / MARKERS_DIR / f"{task}.killed"
    return read_text(path, MARKER_LIMIT_BYTES, root=run_dir).strip()[:80]


def list_skipped(run_dir: Path) -> set[str]:
    """List the array tasks ("2n8g.17") that were skipped, as the run's time was used up."""
    killed = {
        task
        for task, seen in list_markers(run_dir).items()
        if any(kind == "killed" for _, kind in seen)
    }
    found = set()
    for task in killed:
        with suppress(FileProblem, FileNotFoundError):
            if read_killed(run_dir, task) == SKIPPED:
                found.add(task)
    return found


def read_claim(attempt_dir: Path) -> Optional[str]:
    """Return the id of the array job that runs an attempt; None if no job has claimed it yet."""
    try:
        return str((attempt_dir / CLAIM_FILE).readlink())
    except OSError:
        return None
