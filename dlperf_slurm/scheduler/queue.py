"""Array jobs -> the states of their array tasks, one call a poll: submitit watchers and jobs."""

import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Optional, TypeVar, Union

from submitit.core import core
from submitit.slurm import slurm as submitit_slurm

from dlperf_slurm import slurm_client
from dlperf_slurm.contract.times import parse_time
from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.jobs.run_directory import SCRIPTS_DIR, Run, make_job_name
from dlperf_slurm.scheduler import local
from dlperf_slurm.scheduler.machine import find_first_in_line
from dlperf_slurm.scheduler.queue_table import CutListError, read_table
from dlperf_slurm.scheduler.states import FINAL_STATES, UNKNOWN

Result = TypeVar("Result")

# sacct looks back this far before a run was made: clocks of head and login node may differ
_CLOCK_SLACK = timedelta(hours=1)

# States of sacct(1) in which a job has not ended. For a job that the queue has forgotten they are
# old news; an array task that was cancelled while it was pending never gets another one.
_UNENDED_STATES = frozenset(("PENDING", "REQUEUED", "RESIZING", "RUNNING", "SUSPENDED"))

_FORMAT = "%i|%T|%N|%r"

# how a site has no accounting, which is another thing than accounting that fails
_NO_ACCOUNTING = ("accounting storage is disabled", "sacct is not on PATH")


class QueueWatcher(submitit_slurm.SlurmInfoWatcher):
    """The states of the array tasks of some jobs, which it asks for by the jobs' names.

    A poll is one `squeue`, whatever the number of jobs, and one `sacct` if the queue has forgotten
    array tasks; a site without accounting does without it. What neither knows by name is asked for
    by its id, as a job may have been renamed; by its script, in that folder, it is known to be none
    that was given the id of a former one.
    """

    def __init__(
        self,
        job_names: Sequence[str],
        since: datetime,
        scripts_dir: Optional[Path] = None,
        clusters: str = "",
    ) -> None:
        super().__init__()
        self._cluster = slurm_client.name_cluster(clusters)
        self._scripts_dir = scripts_dir
        self.job_names = list(job_names)
        self.since = since
        self.calls = {"squeue": 0, "sacct": 0}
        # what the last squeue showed
        self.queue: dict[str, dict[str, str]] = {}

    def register_job(self, job_id: str) -> None:
        # submitit's own method would make the next question a new call for each new job
        self._registered.add(job_id)

    def add_job_name(self, job_name: str) -> None:
        """Ask for the jobs of one more name."""
        if job_name not in self.job_names:
            self.job_names.append(job_name)

    def update(self) -> None:
        """Ask once; raises SchedulerError, and keeps what was known, when one does not answer."""
        if not self.job_names:
            return
        self._last_status_check = time.time()
        queue = self._read_queue()
        self.queue = queue
        self._info_dict.update(queue)
        missing = [
            job_id
            for job_id in self._registered
            if job_id not in queue and job_id not in self._finished
        ]
        if missing:
            accounted = self._read_accounting()
            known = {
                job_id: info
                for job_id, info in accounted.items()
                if info["State"] not in _UNENDED_STATES
            }
            unknown = [job_id for job_id in missing if job_id not in known]
            if unknown:
                known.update(self._read_renamed({job_id.partition("_")[0] for job_id in unknown}))
            for job_id in missing:
                nothing = {"JobID": job_id, "State": UNKNOWN, "NodeList": "", "Reason": ""}
                self._info_dict[job_id] = known.get(job_id, nothing)

    def find_info(self, job_id: str) -> dict[str, str]:
        """What is known of an array task; nothing before it was first asked about."""
        return self._info_dict.get(job_id, {})

    def list_array_job_ids(self) -> set[str]:
        """The ids of all array jobs in the queue with one of the names."""
        # all that wait of a job have one line, and share what it says
        lines = {id(info): job_id for job_id, info in self.queue.items()}
        return {job_id.partition("_")[0] for job_id in lines.values()}

    def mark_finished(self, job_id: str) -> None:
        """Ask accounting no more about an array task, of which a file told how it ended."""
        self._finished.add(job_id)

    def mark_unfinished(self, job_id: str) -> None:
        """Ask again about an array task that came back."""
        self._finished.discard(job_id)

    def _read_queue(self) -> dict[str, dict[str, str]]:
        self.calls["squeue"] += 1
        command = ["squeue", "--noheader", "--states=all", f"--format={_FORMAT}"]
        names = f"--name={','.join(self.job_names)}"
        return self._read_expanded([*command, names, *self._cluster])[1]

    def _read_expanded(self, command: list[str]) -> tuple[str, dict[str, dict[str, str]]]:
        """What squeue prints, and the table of it.

        What waits of a job is one line, unless its list of array tasks is cut: then each is asked
        for by itself.
        """
        output = slurm_client.run_client(command)
        try:
            return output, read_table(output)
        except CutListError:
            self.calls["squeue"] += 1
            output = slurm_client.run_client([*command, "--array"])
            return output, read_table(output)

    def _read_renamed(self, array_job_ids: Iterable[str]) -> dict[str, dict[str, str]]:
        """What the queue shows of these jobs; raises SchedulerError when it shows no table."""
        if self._scripts_dir is None:
            return {}
        self.calls["squeue"] += 1
        command = ["squeue", "--states=all", f"--format={_FORMAT}|%o"]
        command += [f"--jobs={','.join(sorted(array_job_ids))}", *self._cluster]
        try:
            output, table = self._read_expanded(command)
        except SchedulerError as error:
            if "Invalid job id" not in str(error):
                raise
            return {}
        # with its heading it is never empty
        if output.strip() and not table:
            raise SchedulerError(f"squeue printed no table: {output.strip()[:200]!r}")
        found = {}
        for job_id, info in table.items():
            reason, _, script = info["Reason"].rpartition("|")
            if Path(script).parent == self._scripts_dir:
                found[job_id] = {**info, "Reason": reason}
        return found

    def _read_accounting(self) -> dict[str, dict[str, str]]:
        self.calls["sacct"] += 1
        start = (self.since.astimezone() - _CLOCK_SLACK).strftime("%Y-%m-%dT%H:%M:%S")
        command = ["sacct", "--noheader", "--allocations", "--parsable2", f"--starttime={start}"]
        command += ["--format=JobID,State,NodeList,Reason", f"--name={','.join(self.job_names)}"]
        try:
            return read_table(slurm_client.run_client([*command, *self._cluster]))
        except SchedulerError as error:
            # what failed may know it another time: that nobody does cannot be said then
            if not any(sign in str(error) for sign in _NO_ACCOUNTING):
                raise
            return {}

    def list_unended(self, array_job_ids: Iterable[str] = ()) -> dict[str, str]:
        """The states of all array tasks that have not ended, by their ids.

        They are those with one of the names, and of these jobs, which may have been renamed.
        Raises SchedulerError when the queue does not answer.
        """
        table = self._read_queue() if self.job_names else {}
        renamed = set(array_job_ids) - {job_id.partition("_")[0] for job_id in table}
        if renamed:
            table.update(self._read_renamed(renamed))
        return {
            job_id: info["State"]
            for job_id, info in table.items()
            if info["State"] not in FINAL_STATES
            and slurm_client.is_job_id(job_id.partition("_")[0])
        }

    def find_array_job_id(self) -> Optional[str]:
        """The id of the oldest array job with one of the names, from the queue or else accounting.

        It is None when neither knows one. Raises SchedulerError when one does not answer.
        """
        for read in (self._read_queue, self._read_accounting):
            ids = {job_id.partition("_")[0] for job_id in read() if job_id}
            if ids:
                return min(ids, key=int)
        return None


class ProcessWatcher(core.InfoWatcher):
    """The states of the array tasks of this machine, from the processes that run them.

    Those of `run_id` are said to wait for other runs alone.
    """

    def __init__(self, run_id: str = "") -> None:
        super().__init__()
        self._run_id = run_id
        self.calls: dict[str, int] = {}

    def register_job(self, job_id: str) -> None:
        self._registered.add(job_id)

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        return self.get_info(job_id, mode).get("State", UNKNOWN)

    def update(self) -> None:
        """Look which processes live; a local array task that has not started is PENDING."""
        first = find_first_in_line()
        waiting = "" if first in ("", self._run_id) else f"run {first} has this machine"
        for job_id in self._registered:
            array_job_id = job_id.rpartition("_")[0]
            host = local.find_other_host(array_job_id)
            state = "PENDING" if host or local.is_alive(array_job_id) else UNKNOWN
            elsewhere = f"on {host}, where alone it can be seen whether it lives" if host else ""
            reason = elsewhere or (waiting if state == "PENDING" else "")
            self._info_dict[job_id] = {"JobID": job_id, "State": state, "Reason": reason}

    def find_info(self, job_id: str) -> dict[str, str]:
        """What is known of an array task."""
        return self._info_dict.get(job_id, {})

    def mark_finished(self, job_id: str) -> None:
        self._finished.add(job_id)

    def mark_unfinished(self, job_id: str) -> None:
        self._finished.discard(job_id)


class SlurmArrayTaskJob(submitit_slurm.SlurmJob[Result]):
    """One array task as a submitit job; its watcher is the run's."""

    def __init__(self, folder: Path, job_id: str, watcher: Optional[QueueWatcher] = None) -> None:
        self.watcher = watcher or QueueWatcher((), datetime.now())
        super().__init__(folder, job_id)


class LocalArrayTaskJob(core.Job[Result]):
    """One array task of this machine as a submitit job."""

    def __init__(self, folder: Path, job_id: str, watcher: Optional[ProcessWatcher] = None) -> None:
        self.watcher = watcher or ProcessWatcher()
        super().__init__(folder, job_id)


Watcher = Union[QueueWatcher, ProcessWatcher]


def make_watcher(run: Run, group_ids: Sequence[str]) -> Watcher:
    """The watcher for the run's scheduler."""
    if run.manifest.scheduler == "local":
        return ProcessWatcher(run.run_id)
    names = [make_job_name(run.run_id, group_id) for group_id in group_ids]
    since, scripts_dir = parse_time(run.manifest.created_at), run.path / SCRIPTS_DIR
    return QueueWatcher(names, since, scripts_dir, run.manifest.clusters)
