"""Submit a group's script as one array job, through submitit."""

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, TypeVar

from submitit.core import core, utils
from submitit.slurm import slurm as submitit_slurm

from dlperf_slurm import slurm_client
from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.files.writing import open_to_append
from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.scheduler import local
from dlperf_slurm.scheduler.queue import ProcessWatcher, QueueWatcher, Watcher
from dlperf_slurm.scheduler.state import UNKNOWN

LOCAL_START_SECONDS = 20.0

Result = TypeVar("Result")


class ArrayTaskWatcher(core.InfoWatcher):
    """The watcher of a run's queue in the form that submitit's jobs expect."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self.watcher = watcher

    def register_job(self, job_id: str) -> None:
        # submitit's own method would cause a scheduler call for each new job
        self.watcher.followed.add(job_id)

    def get_info(self, job_id: str, mode: str = "standard") -> dict[str, str]:
        """Return id and state of an array task under the names of sacct's columns."""
        if mode != "cache":
            self.watcher.update()
        state = self.watcher.get_row(job_id).state
        return {"JobID": job_id, "State": state} if state else {}

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        return self.get_info(job_id, mode).get("State", UNKNOWN)


class SlurmArrayTaskJob(submitit_slurm.SlurmJob[Result]):
    """One array task as a submitit job that shares the run's watcher."""

    def __init__(self, folder: Path, job_id: str, watcher: Optional[QueueWatcher] = None) -> None:
        # submitit's own attribute is a SlurmInfoWatcher, whose methods it calls through InfoWatcher
        self.watcher: Any = ArrayTaskWatcher(watcher or QueueWatcher(()))
        super().__init__(folder, job_id)


class LocalArrayTaskJob(core.Job[Result]):
    """One local array task as a submitit job."""

    def __init__(self, folder: Path, job_id: str, watcher: Optional[ProcessWatcher] = None) -> None:
        self.watcher = ArrayTaskWatcher(watcher or ProcessWatcher())
        super().__init__(folder, job_id)


@dataclass(frozen=True)
class ScriptCall:
    """One array task of a job script as a callable, the form that submitit submits."""

    script: Path
    array_task_id: int

    def __call__(self) -> None:
        """Run the array task in this process, as submitit's debug executor does."""
        subprocess.run(["bash", str(self.script), str(self.array_task_id)], check=True)


class SlurmArrayExecutor(submitit_slurm.SlurmExecutor):
    """Executor that submits one rendered script as one array job, instead of pickled functions.

    `lock` is the descriptor of the submit lock, which sbatch inherits. The job starts after the
    array jobs `awaited` have ended. `inherit` names the SBATCH_ variables that sbatch gets.
    """

    job_class: type[SlurmArrayTaskJob[Any]] = SlurmArrayTaskJob

    def __init__(
        self, script: Path, lock: int, awaited: Sequence[str] = (), inherit: Sequence[str] = ()
    ) -> None:
        super().__init__(script.parent)
        self.inherit = inherit
        self.script = script
        self.awaited = awaited
        self.lock = lock

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        """Call sbatch once; return a submitit job for each element of the array."""
        after = [f"--dependency=afterany:{':'.join(self.awaited)}"] if self.awaited else []
        command = ["sbatch", "--parsable", *after, str(self.script)]
        output = slurm_client.run_client(command, keep_open=(self.lock,), inherit=self.inherit)
        job_id = slurm_client.parse_job_id(output)
        count = len(delayed_submissions)
        return [self.job_class(self.folder, f"{job_id}_{index}") for index in range(count)]


class LocalArrayExecutor(core.Executor):
    """Executor that runs one rendered script as a local array job, in a separate process."""

    job_class: type[LocalArrayTaskJob[Any]] = LocalArrayTaskJob

    def __init__(self, run: Run, group_id: str, limit: local.TimeLimit) -> None:
        super().__init__(run.path)
        self.run = run
        self.group_id = group_id
        self.limit = limit

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        """Start the process that runs the array tasks; return a submitit job for each of them."""
        count = len(delayed_submissions)
        log = self.run.get_script_path(self.group_id).with_suffix(".local.log")
        with open_to_append(log, root=self.run.path) as output:
            process = subprocess.Popen(
                local.make_command(self.run.path, self.group_id, count, self.limit),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        job_id = self._wait_for_claim(process, log)
        return [self.job_class(self.folder, f"{job_id}_{index}") for index in range(count)]

    def _wait_for_claim(self, process: "subprocess.Popen[bytes]", log: Path) -> str:
        """Wait until the started process has claimed its group; return its job id."""
        deadline = time.monotonic() + LOCAL_START_SECONDS
        while time.monotonic() < deadline:
            job_id = local.read_claim(self.run.path, self.group_id)
            if job_id is not None:
                return job_id
            if process.poll() is not None:
                break
            time.sleep(0.02)
        raise SchedulerError(f"the local array job did not start; see {log}")
