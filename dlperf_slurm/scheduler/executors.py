"""Submit a group's script as one array job of Slurm, through submitit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from submitit.core import core, utils
from submitit.slurm import slurm as submitit_slurm

from dlperf_slurm import slurm_client


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
        """Call sbatch for the script; return a submitit job with the id of the array job."""
        after = [f"--dependency=afterany:{':'.join(self.awaited)}"] if self.awaited else []
        command = ["sbatch", "--parsable", *after, str(self.script)]
        output = slurm_client.run_client(command, keep_open=(self.lock,), inherit=self.inherit)
        return [self.job_class(self.folder, slurm_client.parse_job_id(output))]
