"""Array jobs -> the states of their array tasks, one call a poll: submitit watchers and jobs."""

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Optional, TypeVar, Union

from submitit.core import core
from submitit.slurm import slurm as submitit_slurm

from dlperf_slurm import local, slurm
from dlperf_slurm.contract import parse_time
from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.run import Run, make_job_name

UNKNOWN = "UNKNOWN"

Result = TypeVar("Result")

# sacct looks back this far before a run was made: clocks of head and login node may differ
_CLOCK_SLACK = timedelta(hours=1)


class QueueWatcher(submitit_slurm.SlurmInfoWatcher):
    """States of the array tasks of some jobs, by their names.

    One `squeue` a poll, whatever the number of jobs. Only array tasks that the queue has forgotten
    are looked up with one `sacct`; a site without accounting does without.
    """

    def __init__(self, job_names: Sequence[str], since: datetime) -> None:
        super().__init__()
        self.job_names = list(job_names)
        self.since = since
        self.calls = {"squeue": 0, "sacct": 0}

    def register_job(self, job_id: str) -> None:
        # submitit's own would make the next question a new call for each new job
        self._registered.add(job_id)

    def update(self) -> None:
        """Ask once; SchedulerError when the queue does not answer, and what was known stays."""
        if not self.job_names:
            return
        self._last_status_check = time.time()
        queue = self._read_queue()
        self._info_dict.update(queue)
        missing = [
            job_id
            for job_id in self._registered
            if job_id not in queue and job_id not in self._finished
        ]
        if missing:
            accounted = self._read_accounting()
            for job_id in missing:
                unknown = {"JobID": job_id, "State": UNKNOWN, "NodeList": "", "Reason": ""}
                self._info_dict[job_id] = accounted.get(job_id, unknown)

    def mark_finished(self, job_id: str) -> None:
        """A file told how it ended: nothing needs to be asked about it any more."""
        self._finished.add(job_id)

    def _read_queue(self) -> dict[str, dict[str, str]]:
        self.calls["squeue"] += 1
        command = ["squeue", "--noheader", "--array", "--states=all", "--format=%i|%T|%N|%r"]
        output = slurm.run_client([*command, f"--name={','.join(self.job_names)}"])
        return read_table(output)

    def _read_accounting(self) -> dict[str, dict[str, str]]:
        self.calls["sacct"] += 1
        start = (self.since.astimezone() - _CLOCK_SLACK).strftime("%Y-%m-%dT%H:%M:%S")
        command = ["sacct", "--noheader", "--allocations", "--parsable2", f"--starttime={start}"]
        command += ["--format=JobID,State,NodeList,Reason", f"--name={','.join(self.job_names)}"]
        try:
            return read_table(slurm.run_client(command))
        except SchedulerError:
            return {}

    def find_array_job_id(self) -> Optional[str]:
        """The id of the oldest array job with one of the names: of the queue, else accounting."""
        for read in (self._read_queue, self._read_accounting):
            ids = {job_id.partition("_")[0] for job_id in read() if job_id}
            if ids:
                return min(ids, key=int)
        return None


def read_table(output: str) -> dict[str, dict[str, str]]:
    """ "id|state|nodes|reason" lines by id; "CANCELLED by 1000" is CANCELLED."""
    rows = (line.split("|", 3) for line in output.splitlines() if line.count("|") >= 3)
    return {
        row[0].strip(): {
            "JobID": row[0].strip(),
            "State": (row[1].split() or [UNKNOWN])[0].rstrip("+"),
            "NodeList": row[2].strip(),
            "Reason": row[3].strip(),
        }
        for row in rows
    }


class ProcessWatcher(core.InfoWatcher):
    """States of the array tasks of this machine, from the processes that run them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, int] = {}

    def register_job(self, job_id: str) -> None:
        self._registered.add(job_id)

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        return self.get_info(job_id, mode).get("State", UNKNOWN)

    def update(self) -> None:
        """Look which processes live; a local array task that has not started is PENDING."""
        for array_job_id in {job_id.partition("_")[0] for job_id in self._registered}:
            state = "PENDING" if local.is_alive(array_job_id) else UNKNOWN
            for job_id in self._registered:
                if job_id.partition("_")[0] == array_job_id:
                    self._info_dict[job_id] = {"JobID": job_id, "State": state}

    def mark_finished(self, job_id: str) -> None:
        self._finished.add(job_id)


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
        return ProcessWatcher()
    names = [make_job_name(run.run_id, group_id) for group_id in group_ids]
    return QueueWatcher(names, parse_time(run.manifest.created_at))
