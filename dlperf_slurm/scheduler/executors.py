"""Submit a group's script as one array job, through submitit."""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from submitit.core import core, utils
from submitit.slurm import slurm as submitit_slurm

from dlperf_slurm import slurm_client
from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.files.writing import open_to_append
from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.scheduler import local

LOCAL_START_SECONDS = 20.0


class LocalArrayJob(core.Job[Any]):
    """A local array job, as submitit requires a class of its own."""


class SlurmArrayExecutor(submitit_slurm.SlurmExecutor):
    """Executor that submits one rendered script as one array job, instead of a pickled function.

    `lock` is the descriptor of the submit lock, which sbatch inherits. The job starts after the
    array jobs `awaited` have ended. `inherit` names the SBATCH_ variables that sbatch gets.
    """

    def __init__(
        self, script: Path, lock: int, awaited: Sequence[str], inherit: Sequence[str]
    ) -> None:
        super().__init__(script.parent)
        self.inherit = inherit
        self.script = script
        self.awaited = awaited
        self.lock = lock

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        """Call sbatch; return a submitit job with the id of the array job."""
        after = [f"--dependency=afterany:{':'.join(self.awaited)}"] if self.awaited else []
        command = ["sbatch", "--parsable", *after, str(self.script)]
        output = slurm_client.run_client(command, keep_open=(self.lock,), inherit=self.inherit)
        return [self.job_class(self.folder, slurm_client.parse_job_id(output))]


class LocalArrayExecutor(core.Executor):
    """Executor that runs one rendered script as a local array job, in a separate process."""

    job_class = LocalArrayJob

    def __init__(self, run: Run, group_id: str, limit: local.TimeLimit) -> None:
        super().__init__(run.path)
        self.run = run
        self.group_id = group_id
        self.limit = limit

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        """Start the process that runs the array tasks; return a submitit job with its job id."""
        count = len(self.run.read_tasks(self.group_id))
        log = self.run.get_script_path(self.group_id).with_suffix(".local.log")
        with open_to_append(log, root=self.run.path) as output:
            process = subprocess.Popen(
                local.make_command(self.run.path, self.group_id, count, self.limit),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return [self.job_class(self.folder, self._wait_for_claim(process, log))]

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
