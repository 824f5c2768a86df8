"""Read the queue: one squeue per poll, and one sacct for array tasks that squeue has forgotten.

No other module calls squeue or sacct. squeue is called with --user, not --name: one answer then
covers renamed jobs, an array job that was submitted twice, the free slots of `max_submitted` and
doctor's probe job, and the controller sends the jobs of some users instead of all.
"""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Optional, Union

from dlperf_slurm import slurm_client
from dlperf_slurm.contract.times import parse_time
from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.jobs.journal import SUBMITTED, read_journal
from dlperf_slurm.jobs.manifest import MAX_REPEATS
from dlperf_slurm.jobs.run_directory import SCRIPTS_DIR, Run, make_job_name
from dlperf_slurm.scheduler import local
from dlperf_slurm.scheduler.machine_lock import get_first_in_queue
from dlperf_slurm.scheduler.state import FINAL_STATES, PENDING, REVOKED, UNKNOWN, QueueRow

# a character that no name, reason or path contains
SEPARATOR = "\x1f"
HEADING = "JOBID"
_SQUEUE_FIELDS = ("%i", "%T", "%N", "%r", "%j", "%U", "%o")
_SACCT_FIELDS = ("JobID", "State", "NodeList", "Reason", "JobName")
# "7_[0-2,5%10]"; by a step "7_[0-20:2]"
_ARRAY_TASKS = r"([1-9]\d{0,9})_\[([\d,:-]+)(?:%\d+)?\]"
_RANGE = r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?"
# how long before the run's creation sacct starts: clocks of head and login node may differ
_CLOCK_SLACK = timedelta(hours=1)
_SACCT_TIME = "%Y-%m-%dT%H:%M:%S"
# slurmdbd's error for a time range that is longer than its MaxQueryTimeRange
_TOO_WIDE = "too wide of a date range"
_SHORTEST_RANGE = timedelta(minutes=1)
# messages of a site without accounting; any other error means that accounting fails
_NO_ACCOUNTING = ("accounting storage is disabled", "sacct is not on PATH")


class TruncatedListError(SchedulerError):
    """A list of array tasks that squeue truncated, such as "7_[0,2,4,...]"."""


class QueueLine(NamedTuple):
    """One line of squeue or sacct, about a job or several array tasks of it.

    `array_tasks` are ranges of indices in the array; `row` has the state that they share; `name` is
    the job name, `script` the path of the job script. sacct has neither `user_id` nor `script`.
    """

    job_id: str
    array_tasks: tuple[range, ...]
    row: QueueRow
    name: str
    user_id: str = ""
    script: str = ""

    def list_ids(self) -> Iterator[str]:
        """Yield the ids of the array tasks, such as "7_3".

        Raises SchedulerError if there are more than a run can have.
        """
        if sum(map(len, self.array_tasks)) > MAX_REPEATS:
            raise SchedulerError(
                f"job {self.job_id} has more array tasks than any run of dlperf-slurm"
            )
        return (f"{self.job_id}_{n}" for numbers in self.array_tasks for n in numbers)


class QueueWatcher:
    """Watcher of one run's jobs in queue and accounting of a cluster, or of its federation.

    A job belongs to the run if its name is one of `job_names`, or if its script is in `scripts_dir`
    (after a rename); job ids alone do not identify it, because Slurm reuses them. `since` is when
    the run was created; jobs of this user and of `user_ids` are watched. `followed` are the array
    tasks ("7_3") that are looked up in sacct if squeue has none of them.
    """

    def __init__(
        self,
        job_names: Sequence[str],
        since: Optional[datetime] = None,
        scripts_dir: Optional[Path] = None,
        clusters: str = "",
        user_ids: Collection[int] = (),
    ) -> None:
        self.followed: set[str] = set()
        self._cluster = slurm_client.get_cluster_option(clusters)
        self._scripts_dir = scripts_dir
        self._user_ids = {os.geteuid(), *user_ids}
        self._since = since
        self._lines: list[QueueLine] = []
        self._rows: dict[str, QueueRow] = {}
        self.job_names = set(job_names)
        self.calls = {"squeue": 0, "sacct": 0}
        # rows of the run's array tasks in the last squeue output
        self.queue: dict[str, QueueRow] = {}

    def update(self) -> None:
        """Call squeue, and sacct for `followed` array tasks that squeue no longer lists.

        If that raises SchedulerError, the rows of the last successful call are kept.
        """
        if not self.job_names:
            return
        self.read_queue()
        rows = dict(self.queue)
        forgotten = [
            job_id
            for job_id in self.followed
            if rows.get(job_id, QueueRow(REVOKED)).state == REVOKED
            and self.get_row(job_id).state not in FINAL_STATES
        ]
        if forgotten:
            array_job_ids = {job_id.partition("_")[0] for job_id in forgotten}
            accounted = self._ask_accounting([f"--jobs={','.join(sorted(array_job_ids))}"])
            for job_id in forgotten:
                rows[job_id] = accounted.get(job_id, rows.get(job_id, QueueRow(UNKNOWN)))
        self._rows.update(rows)

    def get_row(self, job_id: str) -> QueueRow:
        """Return what was last known of an array task ("7_3"); a row of state "" if nothing was."""
        return self._rows.get(job_id, QueueRow())

    def read_queue(self) -> None:
        """Store squeue's rows of the run in `queue`; raise SchedulerError unless it prints them."""
        where = self._cluster or ["--federation", "--sibling"]
        users = ",".join(map(str, sorted(self._user_ids)))
        form = f"--format={SEPARATOR.join(_SQUEUE_FIELDS)}"
        command = ["squeue", "--states=all", f"--user={users}", *where, form]
        try:
            lines = parse_lines(self._call(command))
        except TruncatedListError:
            lines = parse_lines(self._call([*command, "--array"]))
        queue: dict[str, QueueRow] = {}
        for line in filter(self._is_ours, lines):
            for job_id in line.list_ids():
                known = queue.get(job_id, QueueRow(REVOKED)).state
                # in a federation each cluster has a row; use that of the cluster that runs the job
                if known == REVOKED or (known == PENDING and line.row.state != REVOKED):
                    queue[job_id] = line.row
        self._lines, self.queue = lines, queue

    def list_array_job_ids(self) -> dict[str, list[str]]:
        """Return the ids of the run's array jobs in the last squeue output, by original job name.

        A renamed job is found by the file name of its script.
        """
        found: dict[str, list[str]] = {}
        for line in filter(self._is_ours, self._lines):
            name = line.name
            if name not in self.job_names:
                ending = f".{Path(line.script).stem}"
                name = next((known for known in self.job_names if known.endswith(ending)), "")
            found.setdefault(name, []).append(line.job_id)
        return found

    def list_unended(self) -> dict[str, str]:
        """Call squeue; return id ("7_3") -> state of the run's array tasks that have not ended."""
        if self.job_names:
            self.read_queue()
        return {
            job_id: row.state
            for job_id, row in self.queue.items()
            if row.is_waiting_or_running and slurm_client.is_job_id(job_id.partition("_")[0])
        }

    def count_jobs(self) -> int:
        """Call squeue; count this user's jobs, of all runs, that have not ended.

        Each array task counts as one. Raises SchedulerError.
        """
        self.read_queue()
        own = [line for line in self._lines if line.user_id == str(os.geteuid())]
        return sum(
            sum(map(len, tasks))
            for _, tasks in {line[:2] for line in own if line.row.is_waiting_or_running}
        )

    def find_array_job_id(self) -> Optional[str]:
        """Return the id of the array job whose name is in `job_names`, or None if there is none.

        squeue is asked first, then sacct. Of several jobs the lowest id, thus the oldest, is
        returned. Raises SchedulerError if squeue or sacct fails.
        """
        self.read_queue()
        ids = {line.job_id for line in self._lines if line.name in self.job_names}
        if not ids and self._since is not None:
            options = [f"--name={','.join(sorted(self.job_names))}"]
            accounted = self._ask_since(self._since.astimezone() - _CLOCK_SLACK, options)
            ids = {job_id.partition("_")[0] for job_id in accounted}
        return min(filter(slurm_client.is_job_id, ids), key=int, default=None)

    def _is_ours(self, line: QueueLine) -> bool:
        """Return whether a line of squeue or sacct is about a job of the run."""
        is_in_folder = bool(line.script) and Path(line.script).parent == self._scripts_dir
        return line.name in self.job_names or is_in_folder

    def _ask_since(self, start: datetime, options: Sequence[str]) -> dict[str, QueueRow]:
        """Call sacct with `options` for the time since `start`; return rows by array task id.

        As long as slurmdbd refuses a range (MaxQueryTimeRange), half of it is asked for. Raises
        SchedulerError if it refuses `_SHORTEST_RANGE` too.
        """
        rows: dict[str, QueueRow] = {}
        now = datetime.now().astimezone()
        width = now - start
        while start < now:
            end = min(start + width, now)
            times = [
                f"--{name}={t.strftime(_SACCT_TIME)}"
                for name, t in (("starttime", start), ("endtime", end))
            ]
            try:
                rows.update(self._ask_accounting([*options, *times], is_final_only=False))
                start = end
            except SchedulerError as error:
                # rounded up, so that rounding adds no piece
                width = width / 2 + timedelta(microseconds=1)
                if width < _SHORTEST_RANGE or not re.search(_TOO_WIDE, str(error), flags=re.I):
                    raise
        return rows

    def _ask_accounting(
        self, options: Sequence[str], is_final_only: bool = True
    ) -> dict[str, QueueRow]:
        """Call sacct with `options`, which select jobs; return rows by array task id of the run.

        By default only rows with a final state are returned; {} if the site has no accounting.

        For a job that squeue has forgotten other rows are outdated, but an array task that was
        cancelled while pending never gets a final one. No time range is given with job ids: it may
        be wider than MaxQueryTimeRange of slurmdbd.
        """
        where = self._cluster or ["--federation"]
        command = ["sacct", "--noheader", "--allocations", "--parsable2", *options, *where]
        command += [f"--delimiter={SEPARATOR}", f"--format={','.join(_SACCT_FIELDS)}"]
        try:
            lines = parse_lines(self._call(command), has_heading=True)
        except SchedulerError as error:
            # accounting that fails may know the job: it must not count as unknown
            if not any(sign in str(error) for sign in _NO_ACCOUNTING):
                raise
            return {}
        return {
            job_id: line.row
            for line in lines
            if line.name in self.job_names and (line.row.state in FINAL_STATES or not is_final_only)
            for job_id in line.list_ids()
        }

    def _call(self, command: Sequence[str]) -> str:
        self.calls[command[0]] += 1
        return slurm_client.run_client(command)


def parse_lines(output: str, has_heading: bool = False) -> list[QueueLine]:
    """Parse the output of squeue or sacct; raises SchedulerError if squeue's heading is missing.

    Columns are separated by SEPARATOR; shorter lines are skipped. Only the heading distinguishes an
    empty queue from other output. sacct is called without one: pass True as `has_heading`.
    """
    lines = []
    for text in output.splitlines():
        cells = [cell.strip() for cell in text.split(SEPARATOR)]
        if len(cells) < len(_SACCT_FIELDS):
            continue
        if cells[0] == HEADING:
            has_heading = True
            continue
        # "CANCELLED by 1000", and "CANCELLED+" where a column is cut
        state = (cells[1].split() or [UNKNOWN])[0].rstrip("+")
        lines.append(
            QueueLine(*parse_ids(cells[0]), QueueRow(state, cells[3], cells[2]), *cells[4:7])
        )
    if not has_heading:
        raise SchedulerError(f"squeue printed no table of jobs, but: {output.strip()[:200]!r}")
    return lines


def parse_ids(text: str) -> tuple[str, tuple[range, ...]]:
    """Parse "7", "7_3" or "7_[0-2,5%10]" into the job id and the ranges of its array indices.

    A plain job ("7") counts as an array with the one index 0. Steps ("0-6:2") are expanded, and
    the throttle ("%10") is dropped. Raises TruncatedListError if squeue cut the list off, and
    SchedulerError if it is malformed otherwise.
    """
    job_id, _, array_task_id = text.partition("_")
    if "[" not in text:
        number = int(array_task_id) if re.fullmatch(r"\d{1,9}", array_task_id) else 0
        return job_id, (range(number, number + 1),)
    if "..." in text:
        raise TruncatedListError(f"squeue cut off the list of array tasks: {text[:80]!r}")
    match = re.fullmatch(_ARRAY_TASKS, text)
    found = []
    for part in match[2].split(",") if match else [""]:
        numbers = re.fullmatch(_RANGE, part)
        if numbers is None:
            raise SchedulerError(
                f"squeue printed {text[:80]!r}, which is not a list of array tasks"
            )
        first, last, step = numbers.groups()
        found.append(range(int(first), int(last or first) + 1, int(step or 1)))
    return job_id, tuple(found)


class ProcessWatcher:
    """Watcher of local array tasks, whose states follow from the processes that run them.

    `run_id` is the watched run: the reason of a waiting task names the run that uses this machine,
    unless that is the watched run itself.
    """

    def __init__(self, run_id: str = "") -> None:
        self.followed: set[str] = set()
        self._run_id = run_id
        self._rows: dict[str, QueueRow] = {}
        self.calls: dict[str, int] = {}
        self.queue: dict[str, QueueRow] = {}

    def update(self) -> None:
        """Set the state of each task in `followed`: PENDING if its process lives, else UNKNOWN.

        A task on another host is PENDING, as its process cannot be looked up. Whether a task has
        started or ended is known from its files alone.
        """
        first = get_first_in_queue() if self.followed else ""
        waiting = ""
        if first not in ("", self._run_id):
            waiting = f"waits for your run {first}, which is using this machine"
        for job_id in self.followed:
            array_job_id = job_id.rpartition("_")[0]
            row = QueueRow(UNKNOWN)
            if host := local.find_other_host(array_job_id):
                row = QueueRow(PENDING, f"runs on {host}; its state is known only on that host")
            elif local.is_alive(array_job_id):
                row = QueueRow(PENDING, waiting)
            self._rows[job_id] = row._replace(is_local=True)

    def get_row(self, job_id: str) -> QueueRow:
        """Return the last known row of an array task, by id; an empty row if `update` set none."""
        return self._rows.get(job_id, QueueRow(is_local=True))


Watcher = Union[QueueWatcher, ProcessWatcher]


def make_watcher(run: Run, group_ids: Sequence[str]) -> Watcher:
    """Return a watcher of these groups' array jobs for the run's scheduler: Slurm or local."""
    if run.manifest.scheduler == "local":
        return ProcessWatcher(run.run_id)
    return make_queue_watcher(run, group_ids)


def make_queue_watcher(run: Run, group_ids: Sequence[str]) -> QueueWatcher:
    """Return a watcher, by squeue and sacct, of these groups' array jobs of whichever user."""
    names = [make_job_name(run.run_id, group_id) for group_id in group_ids]
    submitters = (e.detail for e in read_journal(run.path) if e.event == SUBMITTED)
    user_ids = {run.path.stat().st_uid, *map(int, filter(slurm_client.is_job_id, submitters))}
    return QueueWatcher(
        names,
        parse_time(run.manifest.created_at),
        run.path / SCRIPTS_DIR,
        run.manifest.clusters,
        user_ids,
    )
