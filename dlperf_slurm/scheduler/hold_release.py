"""Release held array tasks once the cause is gone (`scontrol release`)."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from dlperf_slurm import slurm_client
from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.jobs.disk_space import RUN_BYTES, describe_full_disk, is_disk_full_reason
from dlperf_slurm.jobs.markers import forget_hold, read_hold
from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.scheduler.pending_hints import HELD_BY_USER
from dlperf_slurm.scheduler.state import PENDING, TaskState

# how long a disk must have free space, and the least time between two calls of scontrol
PAUSE_SECONDS = 10.0
# how often a group that was held for a full disk is released
RELEASES = 5
# a job script's hold that has no error message
_WORDLESS = re.compile(r"exit code \d+ on \S+: ")
# Slurm's reason for a job that a node could not launch
_LAUNCH_FAILED = re.compile("launch ?failed ?requeued ?held", re.I)


class Releaser:
    """Releaser of held jobs: runs `scontrol release` once the cause of a hold is gone.

    Job scripts hold their array if the disk is full or launches fail; Slurm holds a job that a node
    could not launch. A failed launch is released at most `launch_tries` times. Jobs that are held
    for another reason are left to the user.
    """

    def __init__(self, run: Run, launch_tries: int) -> None:
        self._run = run
        self._launch_tries = launch_tries
        self._due = time.monotonic() + PAUSE_SECONDS
        self._counts: dict[str, int] = {}
        # the poll after which a job was last released
        self._polls: dict[str, int] = {}

    def release(self, states: Sequence[TaskState], poll: int) -> list[str]:
        """Release the jobs whose cause of being held is gone; return a line for each.

        Does nothing while the disk is full, and for PAUSE_SECONDS after that or after the last try.
        `poll` is the number of the squeue call that gave `states`; a job is released once per call,
        and at most RELEASES (full disk) or `launch_tries` (failed launch) times in all.
        """
        now = time.monotonic()
        try:
            is_full = describe_full_disk(self._run.path, RUN_BYTES) != ""
        except OSError:
            is_full = True
        if is_full:
            self._due = now + PAUSE_SECONDS
        if is_full or now < self._due:
            return []
        held = [state for state in states if state.state == PENDING]
        lines = [*self._release_groups(held, poll), *self._release_unlaunched(held, poll)]
        if held:
            # even if a release failed: a controller that does not answer is not called more often
            self._due = now + PAUSE_SECONDS
        return lines

    def _release_groups(self, held: Sequence[TaskState], poll: int) -> Iterator[str]:
        """Release the array jobs that their own job scripts held; yield a line for each one."""
        groups = {
            state.task.group_id: state.array_job_id
            for state in held
            if state.detail == HELD_BY_USER
        }
        for group_id, array_job_id in groups.items():
            cause = read_hold(self._run.path, group_id)
            if is_disk_full_reason(cause):
                limit = RELEASES
            else:
                # a disk that was full for a moment may have lost the error message
                limit = self._launch_tries if _WORDLESS.fullmatch(cause) else 0
            if self._release(array_job_id, limit, poll):
                with suppress(OSError):
                    forget_hold(self._run.path, group_id)
                yield f"array job {array_job_id} was held ({cause}) and has been released"

    def _release_unlaunched(self, held: Sequence[TaskState], poll: int) -> Iterator[str]:
        """Release jobs that Slurm held as nodes could not launch them; yield a line for each."""
        for state in held:
            if _LAUNCH_FAILED.search(state.detail) is None:
                continue
            # a group of one job is a plain job, without an array index
            is_only = self._run.count_jobs(state.task.group_id) == 1
            job_id = state.array_job_id if is_only else state.task.get_job_id(state.array_job_id)
            if self._release(job_id, self._launch_tries, poll):
                yield f"job {job_id} was held ({state.detail}) and has been released"

    def _release(self, job_id: str, limit: int, poll: int) -> bool:
        """Run `scontrol release` for a job; return False if it was not called, or failed.

        It is called at most `limit` times for a job, and once per `poll`, the number of a squeue
        call.
        """
        if self._counts.get(job_id, 0) >= limit or self._polls.get(job_id) == poll:
            return False
        try:
            cluster = slurm_client.get_cluster_option(self._run.manifest.clusters)
            slurm_client.run_client(["scontrol", *cluster, "release", job_id])
        except SchedulerError:
            return False
        self._counts[job_id] = self._counts.get(job_id, 0) + 1
        self._polls[job_id] = poll
        return True
