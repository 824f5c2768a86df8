"""A run directory -> what was planned in it: the manifest and the array tasks of each group."""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.contract.case import CASE_FILE
from dlperf_slurm.contract.json_files import (
    FORMER_AXES,
    SCHEMA_VERSION,
    ContractError,
    build_dataclass,
    lift,
    take_axes,
)
from dlperf_slurm.contract.times import parse_time
from dlperf_slurm.errors import InputError
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.archives import ARCHIVE_SUFFIX
from dlperf_slurm.files.listing import has_file, list_names
from dlperf_slurm.files.reading import read_json, read_text
from dlperf_slurm.jobs.journal import STAGED, SUBMITTED, read_whole_journal
from dlperf_slurm.jobs.markers import list_markers

# the site of runs that import-logs made
IMPORT_SITE = "import"
MANIFEST_FILE = "manifest.json"
MATRIX_FILE = "matrix.toml"
SITE_FILE = "site.toml"
SCRIPTS_DIR = "scripts"
CODE_DIR = "code"
REPORT_DIR = "report"
SCHEDULERS = ("slurm", "local")
# of all cases of a run together; a matrix may have a tenth of it
MAX_REPEATS = 1_000_000

# of a directory, which cannot lead out of its own
_FILE_NAME = r"(?!\.{1,2}$)[^/\x00-\x1f]{1,255}"

# a line of the file of a group: a framework, a directory in which nothing but an attempt lies, what
# starts it, and which of the group's jobs it shares with others
_TASK = re.compile(
    r"[^\t]*\t(?P<folder>cases/(?!\.{1,2}/)[^/\t]+/r[0-9]{1,6}/a[0-9]{1,6})"
    r"(?:\t[^\t]*(?:\t(?P<job>[0-9]{1,6}))?)?"
)


@dataclass(frozen=True)
class PlannedCase:
    """A case of the matrix as the tables show it; `reason` if it is left out.

    A case with `epochs` trains to accuracy. Its repeats are spread over `blocks`, array jobs that
    run one after the other.
    """

    case_id: str
    model: str
    axes: Axes
    repeats: int
    notes: tuple[str, ...]
    reason: str
    epochs: int = 0
    blocks: int = 1

    @property
    def batch_size_text(self) -> str:
        """The batch size per device as the matrix has it."""
        return str(self.axes.batch_size_per_device)


def find_block(repeat: int, blocks: int) -> int:
    """The block, from 1, that a repeat belongs to: neighbouring repeats are in different ones."""
    return 1 + (repeat - 1) % blocks


@dataclass(frozen=True)
class Manifest:
    """What was asked, where, by whom and with which code; written before any submission.

    `mended` has the site values that were changed afterwards, for what was not submitted yet.
    After `within_seconds`, where it is not 0, no further repeat begins on this machine.
    `clusters`, `inherit` and `max_submitted` are the site's.
    """

    run_id: str
    title: str
    matrix_name: str
    site_name: str
    scheduler: str
    created_at: str
    created_by: str
    created_on: str
    command: tuple[str, ...]
    tool_version: str
    tool_git: str
    poll_seconds: float
    slowest_poll_seconds: float
    lost_after_seconds: float
    cases: tuple[PlannedCase, ...]
    mended: tuple[str, ...] = ()
    within_seconds: float = 0.0
    clusters: str = ""
    inherit: tuple[str, ...] = ()
    max_submitted: Optional[int] = None

    @property
    def is_import(self) -> bool:
        """Whether the run is of logs that were made elsewhere: no site of ours ran it."""
        return self.site_name == IMPORT_SITE

    @property
    def headline(self) -> str:
        """The line at the head of the run's scripts: what made them, and for what."""
        return f"dlperf-slurm {self.tool}: matrix {self.matrix_name}, site {self.site_name}"

    @property
    def tool(self) -> str:
        """The version of the tool, with its commit where that is known."""
        return f"{self.tool_version} {self.tool_git}".strip()


@dataclass(frozen=True)
class RunTask:
    """An array task of a run; `attempt_dir` is relative to the run directory.

    `shared_job` is the index of the group's job that runs it, and others before and after it; it is
    None where it has a job of its own.
    """

    group_id: str
    array_task_id: int
    attempt_dir: str
    shared_job: Optional[int] = None

    @property
    def job(self) -> tuple[str, int]:
        """The job that runs it: group, and index within it."""
        return self.group_id, self.array_task_id if self.shared_job is None else self.shared_job

    def find_job_id(self, array_job_id: str) -> str:
        """The id of that job once its group is submitted; a plain job is its own element 0."""
        return f"{array_job_id}_{self.job[1]}"

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
        """Name of the task's markers, without start and kind: `.s0.started`, `.s0.ended`."""
        return f"{self.group_id}.{self.array_task_id}"


@dataclass(frozen=True)
class Run:
    """A run directory that has been opened; `schema_version` is that of its files."""

    path: Path
    manifest: Manifest
    schema_version: int = SCHEMA_VERSION

    @property
    def run_id(self) -> str:
        return self.manifest.run_id

    def list_group_ids(self) -> list[str]:
        """The ids of the groups, in the order they were staged.

        A group is of the run when the journal says so, or has lost lines, or when an array task of
        it has run. In the two latter cases its task list and case files must be there.
        """
        events, is_whole = read_whole_journal(self.path)
        named = dict.fromkeys(e.group_id for e in events if e.event in (STAGED, SUBMITTED))
        files = sorted(name for name in self._list_scripts() if name.endswith(".tasks"))
        others = [Path(name).stem for name in files if Path(name).stem not in named]
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

    def _list_scripts(self) -> list[str]:
        try:
            return list_names(self.path / SCRIPTS_DIR, self.path)
        except OSError:
            return []

    def _is_staged(self, group_id: str) -> bool:
        """Whether the files of a group were written to the last."""
        tasks = self.read_tasks(group_id)
        return bool(tasks) and all(
            has_file(self.path / task.attempt_dir / CASE_FILE, self.path) for task in tasks
        )

    def read_tasks(self, group_id: str) -> list[RunTask]:
        """The array tasks of one group by array_task_id; raises InputError without its file."""
        path = self.find_tasks_file(group_id)
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
                    f"{path}:{index + 1}: {line[:80]!r} is no framework and attempt directory"
                )
            shared_job = None if match["job"] is None else int(match["job"])
            tasks.append(RunTask(group_id, index, match["folder"], shared_job))
        return tasks

    def count_jobs(self, group_id: str) -> int:
        """The number of Slurm's jobs of a group; raises InputError as `read_tasks`."""
        return len({task.job for task in self.read_tasks(group_id)})

    def read_all_tasks(self) -> list[RunTask]:
        return [task for group_id in self.list_group_ids() for task in self.read_tasks(group_id)]

    def find_script(self, group_id: str) -> Path:
        return self.path / SCRIPTS_DIR / f"{group_id}.sbatch"

    def find_tasks_file(self, group_id: str) -> Path:
        return self.path / SCRIPTS_DIR / f"{group_id}.tasks"


def make_job_name(run_id: str, group_id: str) -> str:
    """The name by which a submitted array job is found again: unique to run and group."""
    return f"{run_id}.{group_id}"


def format_manifest(manifest: Manifest) -> str:
    data = {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(manifest)}
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def open_run(path: Path) -> Run:
    """Open a run directory, or an archive of one, which can be read alone.

    Raises InputError when it is none, or of a version of the files that this tool does not read.
    """
    file = path / MANIFEST_FILE
    try:
        data = read_json(file, root=path)
    except FileNotFoundError:
        raise InputError(f"{path}: not a run directory: it has no {MANIFEST_FILE}") from None
    except FileProblem as error:
        raise InputError(str(error)) from error
    if not isinstance(data, dict):
        raise InputError(f"{file}: not a manifest: not a JSON object")
    try:
        manifest = build_dataclass(Manifest, lift(data, _lift_manifest, str(file)), str(file))
    except ContractError as error:
        raise InputError(str(error)) from error
    except ValueError as error:
        # of version 1, with anything where its cases should be
        raise InputError(f"{file}: not a manifest: {error}") from error
    problem = find_manifest_problem(manifest)
    if problem:
        raise InputError(f"{file}: {problem}")
    return Run(path.absolute(), manifest, data["schema_version"])


def find_manifest_problem(manifest: Manifest) -> str:
    """The reason why a manifest is of no run, with the key; empty when it may be of one.

    Its runs may be of frameworks and models that this version does not know.
    """
    times = (manifest.poll_seconds, manifest.slowest_poll_seconds, manifest.lost_after_seconds)
    if not all(0 < seconds < 1e9 for seconds in times):
        return "poll_seconds, slowest_poll_seconds and lost_after_seconds are above 0, in seconds"
    if not 0 <= manifest.within_seconds < 1e9:
        return "within_seconds is 0 or more, in seconds"
    try:
        parse_time(manifest.created_at)
    except ValueError as error:
        return f"created_at: {error}"
    if manifest.scheduler not in SCHEDULERS:
        return f"scheduler is {manifest.scheduler[:80]!r}; allowed: {', '.join(SCHEDULERS)}"
    if not re.fullmatch(_FILE_NAME, manifest.run_id):
        return f"run_id is {manifest.run_id[:80]!r}, which is the name of no directory"
    for index, case in enumerate(manifest.cases):
        axes = case.axes
        if not re.fullmatch(_FILE_NAME, case.case_id):
            return f"cases[{index}].case_id is {case.case_id[:80]!r}, the name of no directory"
        if not (0 <= case.repeats <= MAX_REPEATS and 0 <= case.epochs < 10**9):
            return f"cases[{index}]: repeats and epochs are {case.repeats} and {case.epochs}"
        try:
            numbers = [axes.world_size, *axes.batch_ladder]
            numbers += [axes.batch_size] if not axes.has_batch_search else []
        except ValueError as error:
            return f"cases[{index}].axes: {error}"
        numbers += [axes.data_workers, axes.prefetch_batches, axes.gradient_accumulation]
        if not all(0 < number < 10**9 for number in numbers):
            return f"cases[{index}].axes: a batch size or a number of batches is {min(numbers)}"
    task_count = sum(case.repeats for case in manifest.cases)
    if task_count > MAX_REPEATS:
        return f"has {task_count} repeats; at most {MAX_REPEATS} are allowed"
    if len({case.case_id for case in manifest.cases}) < len(manifest.cases):
        return "has two cases of one case_id"
    return ""


def _lift_manifest(data: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest of version 1, whose cases had the axes beside their other values."""
    return {**data, "cases": [_lift_planned_case(case) for case in data["cases"]]}


def _lift_planned_case(data: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(data)
    search = values.pop("batch_search", "")
    if search:
        values["batch_size_per_device"] = search
    axes = take_axes(values)
    return {
        **{name: value for name, value in values.items() if name not in FORMER_AXES},
        "axes": axes,
    }


def find_run(reference: Optional[str], results_dir: Path) -> Run:
    """The run that a directory, a run id or the beginning of one names; the latest for None.

    Raises InputError when there is none, or there are several.
    """
    if reference is not None and (Path(reference) / MANIFEST_FILE).is_file():
        return open_run(Path(reference))
    if reference is not None and Path(reference).suffix == ARCHIVE_SUFFIX:
        raise InputError(
            f"{reference}: an archive is read by report, compare and history alone; `unzip` makes "
            "the run directory again"
        )
    known = list_run_ids(results_dir)
    if reference is None:
        if not known:
            raise InputError(f"{results_dir}: no runs here; name a run directory")
        return open_run(results_dir / known[-1])
    matching = [run_id for run_id in known if run_id.startswith(reference)]
    if len(matching) == 1:
        return open_run(results_dir / matching[0])
    found = "several runs begin so" if matching else "no such run directory or run id"
    shown = ", ".join((matching or known)[-5:]) or "none"
    raise InputError(f"{reference}: {found} in {results_dir}; latest: {shown}")


def list_run_ids(results_dir: Path) -> list[str]:
    """The ids of the runs in a results folder, oldest first (an id begins with the time).

    A hidden folder is on its way to be a run, or was left behind.
    """
    names = (path.parent.name for path in results_dir.glob(f"*/{MANIFEST_FILE}"))
    return sorted(name for name in names if not name.startswith("."))


def list_latest_attempts(tasks: Sequence[RunTask]) -> list[RunTask]:
    """The task with the highest attempt of each case and repeat."""
    latest: dict[tuple[str, int], RunTask] = {}
    for task in tasks:
        key = (task.case_id, task.repeat)
        if key not in latest or task.attempt > latest[key].attempt:
            latest[key] = task
    return list(latest.values())
