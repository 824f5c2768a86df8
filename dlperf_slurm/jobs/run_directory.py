"""A run directory -> its groups (array jobs) and their planned array tasks."""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Optional

from dlperf_slurm.config.folders import describe_denied, make_absolute_path
from dlperf_slurm.errors import InputError
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.archive_lookup import ARCHIVE_SUFFIX, list_names
from dlperf_slurm.files.reading import open_file, read_text
from dlperf_slurm.jobs.journal import STAGED, SUBMITTED, Event, read_whole_journal
from dlperf_slurm.jobs.manifest import MANIFEST_FILE, Manifest, read_manifest
from dlperf_slurm.jobs.markers import list_markers
from dlperf_slurm.program import LATEST

MATRIX_FILE = "matrix.toml"
# one JSON line per case, with all that is not in the rows of its array tasks
CASES_FILE = "cases.jsonl"
SITE_FILE = "site.toml"
# private environment variables of the run's jobs
PRIVATE_FILE = "private.env"
SCRIPTS_DIR = "scripts"
# scripts that run instead of our worker, each once and terminated by NUL
EXTERNAL_SCRIPTS_FILE = f"{SCRIPTS_DIR}/external_scripts"
# the bash code that all scripts of a run source, frozen when the run was made
HARNESS_FILE = f"{SCRIPTS_DIR}/harness.sh"
CODE_DIR = "code"
REPORT_DIR = "report"

# "latest~1" is the run before the newest
_LATEST = rf"{LATEST}(?:~([0-9]{{1,6}}))?"

# a row of a task table, as jobs/task_tables.py writes it; the folder can only be one of an attempt
_TASK = re.compile(
    r"[^\t]*\t(?P<folder>cases/(?!\.{1,2}/)[^/\t]+/r[0-9]{1,6}/a[0-9]{1,6})"
    r"\t[^\t]*\t(?:-|(?P<job>[0-9]{1,6}))"
    r"\t(?P<seed>-?[0-9]{1,19})\t(?P<case>[0-9]{1,12})(?:\t[0-9]{1,12})?"
)


class RunTask(NamedTuple):
    """An array task of a run: one attempt at a repeat of a case.

    `attempt_dir` is relative to the run directory: "cases/CASE_ID/r1/a1". `shared_job` is the index
    of the group's Slurm job that runs the task together with others; None if it has a job of its
    own. `case_offset` is the byte offset of its case in the file of cases.
    """

    group_id: str
    array_task_id: int
    attempt_dir: str
    shared_job: Optional[int] = None
    seed: int = 0
    case_offset: int = 0

    @property
    def job(self) -> tuple[str, int]:
        """The job that runs the array task: group id, and index of the job within the group."""
        return self.group_id, self.array_task_id if self.shared_job is None else self.shared_job

    def get_job_id(self, array_job_id: str) -> str:
        """Return the Slurm id of the array element that runs the task, such as "7_3".

        `array_job_id` is that of the group ("7"); a plain job counts as element 0.
        """
        return f"{array_job_id}_{self.job[1]}"

    @property
    def repeat_dir(self) -> str:
        """The folder of all attempts at this repeat, relative to the run directory."""
        return self.attempt_dir.rpartition("/")[0]

    @property
    def case_id(self) -> str:
        return self.attempt_dir.split("/")[1]

    @property
    def repeat(self) -> int:
        return int(self.attempt_dir.split("/")[2][1:])

    @property
    def attempt(self) -> int:
        return int(self.attempt_dir.split("/")[3][1:])

    @property
    def marker(self) -> str:
        """The beginning of the task's marker file names (`jobs.markers`), such as "2n8g.17"."""
        return f"{self.group_id}.{self.array_task_id}"


class Run(NamedTuple):
    """An opened run directory or archive, with its manifest."""

    path: Path
    manifest: Manifest

    @property
    def run_id(self) -> str:
        return self.manifest.run_id

    @property
    def report_dir(self) -> Path:
        """The report folder, which may not exist; that of an archive is beside it."""
        if self.path.suffix == ARCHIVE_SUFFIX and self.path.is_file():
            return self.path.with_name(f"{self.path.stem}-{REPORT_DIR}")
        return self.path / REPORT_DIR

    def find_interleaved(self) -> "Optional[Run]":
        """Return the run that is measured in turns with this one, or None.

        A directory that is gone, or belongs to another user, counts as none.
        """
        for run_id in self.manifest.interleaved:
            path = self.path.parent / run_id
            with suppress(InputError, OSError):
                if run_id != self.run_id and path.stat().st_uid == self.path.stat().st_uid:
                    return open_run(path)
        return None

    def list_group_ids(self, journal: Optional[tuple[list[Event], bool]] = None) -> list[str]:
        """Return the ids of the groups (array jobs), such as "2n8g", in the order of staging.

        `journal` is what `read_whole_journal` returned, if it was read already.

        A group belongs to the run if the journal lists it, if one of its array tasks has started,
        or if the journal is incomplete and the files of the group are complete.
        """
        events, is_whole = journal or read_whole_journal(self.path)
        named = dict.fromkeys(e.group_id for e in events if e.event in (STAGED, SUBMITTED))
        scripts: list[str] = []
        with suppress(OSError):
            scripts = sorted(list_names(self.path / SCRIPTS_DIR, self.path))
        groups = [Path(name).stem for name in scripts if name.endswith(".tasks")]
        others = [group_id for group_id in groups if group_id not in named]
        if not others:
            return list(named)
        started = {marker.rpartition(".")[0] for marker in list_markers(self.path)}
        return [
            *named,
            *(
                group_id
                for group_id in others
                if group_id in started or (not is_whole and self._is_staged(group_id))
            ),
        ]

    def _is_staged(self, group_id: str) -> bool:
        """Return whether a group has array tasks, and all their cases are in the file of cases."""
        tasks = self.read_tasks(group_id)
        try:
            with open_file(self.path / CASES_FILE, self.path) as file:
                size = file.seek(0, os.SEEK_END)
        except FileNotFoundError:
            size = 0
        return bool(tasks) and all(task.case_offset < size for task in tasks)

    def read_tasks(self, group_id: str) -> list[RunTask]:
        """Read a group's array tasks, by id; raise InputError for a missing or invalid table."""
        path = self.get_tasks_path(group_id)
        try:
            lines = read_text(path, root=self.path).rstrip("\n").split("\n")
        except FileNotFoundError:
            raise InputError(f"{path}: is missing; was the whole run directory copied?") from None
        except FileProblem as error:
            raise InputError(str(error)) from error
        tasks = []
        for index, line in enumerate(lines):
            match = _TASK.fullmatch(line)
            if match is None:
                raise InputError(
                    f"{path}:{index + 1}: {line[:80]!r} is not a valid line for an array task"
                )
            _, folder, job, seed, case = match.group(0, "folder", "job", "seed", "case")
            tasks.append(
                RunTask(
                    group_id, index, folder, None if job is None else int(job), int(seed), int(case)
                )
            )
        return tasks

    def count_jobs(self, group_id: str) -> int:
        """Return how many jobs or array elements a group has; raises InputError as `read_tasks`."""
        return len({task.job for task in self.read_tasks(group_id)})

    def read_all_tasks(self) -> list[RunTask]:
        return [task for group_id in self.list_group_ids() for task in self.read_tasks(group_id)]

    def get_script_path(self, group_id: str) -> Path:
        return self.path / SCRIPTS_DIR / f"{group_id}.sbatch"

    def get_tasks_path(self, group_id: str) -> Path:
        return self.path / SCRIPTS_DIR / f"{group_id}.tasks"


def make_job_name(run_id: str, group_id: str) -> str:
    """Return the Slurm job name of a group, RUN_ID.GROUP_ID, by which squeue finds the job."""
    return f"{run_id}.{group_id}"


def open_run(path: Path) -> Run:
    """Open a run directory, or an archive, which is read-only.

    Raises InputError if it is not a run or may not be read, or if its schema version is not that of
    this tool.
    """
    try:
        return Run(make_absolute_path(path), read_manifest(path))
    except PermissionError as error:
        raise InputError(_describe_denied(path)) from error


def find_run(reference: Optional[str], results_dir: Path) -> Run:
    """Find a run directory by path, by run id or its beginning, or as "latest" (also None).

    See `choose_run_id`. Raises InputError for an archive, or if no run or several runs match.
    """
    if reference is not None and is_run_dir(Path(reference)):
        return open_run(Path(reference))
    if reference is not None and Path(reference).suffix == ARCHIVE_SUFFIX:
        raise InputError(
            f"{reference}: is an archive, and this command needs a run directory; unpack the "
            "archive with `unzip`, and name its directory"
        )
    return open_run(results_dir / choose_run_id(reference, list_run_ids(results_dir), results_dir))


def is_latest(reference: Optional[str]) -> bool:
    """Return whether a reference such as "latest~1", or None, chooses a run by age, not name."""
    return reference is None or re.fullmatch(_LATEST, reference) is not None


def is_run_dir(path: Path) -> bool:
    """Return whether a path is a run directory; raises InputError if it may not be read."""
    try:
        return (path / MANIFEST_FILE).is_file()
    except PermissionError as error:
        raise InputError(_describe_denied(path)) from error


def choose_run_id(reference: Optional[str], known: Sequence[str], results_dir: Path) -> str:
    """Return the run id that a user's `reference` means.

    "latest" or None is the newest, "latest~1" the one before, anything else the beginning of an id.
    `known` are the ids of the runs in `results_dir`, oldest first. Raises InputError if none or
    several match; the message also has the runs that this user may not read.
    """
    reference = LATEST if reference is None else reference
    latest = re.fullmatch(_LATEST, reference)
    if latest is not None and int(latest[1] or 0) < len(known):
        return known[-1 - int(latest[1] or 0)]
    matching = [run_id for run_id in known if run_id.startswith(reference)]
    if len(matching) == 1:
        return matching[0]
    denied = "".join(f"\n{line}" for line in list_denied(results_dir))
    if not known and latest is not None:
        raise InputError(f"{describe_no_runs(results_dir)}; name a run directory{denied}")
    found = "is the beginning of several run ids" if matching else "no such run directory or run id"
    shown = ", ".join((matching or known)[-5:]) or "none"
    raise InputError(f"{reference}: {found} in {results_dir}; latest: {shown}{denied}")


def describe_no_runs(results_dir: Path) -> str:
    """Return why a results folder has no run: it is missing, or contains none."""
    found = "contains no runs" if results_dir.exists() else "no such folder"
    return f"{results_dir}: {found}"


def list_denied(results_dir: Path) -> list[str]:
    """Return a line for each folder in a results folder that this user may not read, with owner."""
    try:
        paths = sorted(path for path in results_dir.iterdir() if not path.name.startswith("."))
    except PermissionError:
        return [_describe_denied(results_dir)]
    except OSError:
        return []
    return [
        _describe_denied(path)
        for path in paths
        if path.is_dir() and not os.access(path, os.R_OK | os.X_OK)
    ]


def _describe_denied(path: Path) -> str:
    return f"{describe_denied(path)}; for later runs, the owner can set `group` in the site file"


def list_run_ids(results_dir: Path) -> list[str]:
    """List the ids of the runs in a results folder, oldest first (an id begins with the time).

    Skipped are hidden folders, which are incomplete run directories, and names with control
    characters.
    """
    names = (path.parent.name for path in results_dir.glob(f"*/{MANIFEST_FILE}"))
    return sorted(name for name in names if not name.startswith(".") and name.isprintable())


def list_latest_attempts(tasks: Sequence[RunTask]) -> list[RunTask]:
    """Return the array task with the highest attempt number of each repeat of each case."""
    latest: dict[tuple[str, int], RunTask] = {}
    for task in tasks:
        key = (task.case_id, task.repeat)
        if key not in latest or task.attempt > latest[key].attempt:
            latest[key] = task
    return list(latest.values())
