"""Release held array tasks whose cause is gone."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from dlperf_slurm import slurm_client
from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.jobs.markers import forget_hold, read_hold
from dlperf_slurm.jobs.room import RUN_BYTES, find_full_disk, is_for_want_of_room
from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.scheduler.advice import HELD_BY_USER
from dlperf_slurm.scheduler.state import PENDING, TaskState

# how long there has to be room again, or the controller is left alone
PAUSE_SECONDS = 10.0
# how often a group is released that was held for a full disk
RELEASES = 5
# of a job script's hold: nothing could be said of why
_WORDLESS = re.compile(r"exit code \d+ on \S+: ")
# Slurm's reason for what a node could not start
_LAUNCH_FAILED = re.compile("launch ?failed ?requeued ?held", re.I)


class Releaser:
    """Releases what is held for a disk that has free space again, or for a node that failed once.

    Job scripts held the first, Slurm the others, each at most `launch_tries` times. Everything else
    that is held is left to the user.
    """

    def __init__(self, run: Run, launch_tries: int) -> None:
        self._run = run
        self._launch_tries = launch_tries
        self._due = time.monotonic() + PAUSE_SECONDS
        self._counts: dict[str, int] = {}
        # the poll by which a job was released last
        self._polls: dict[str, int] = {}

    def release(self, states: Sequence[TaskState], poll: int) -> list[str]:
        """Release what can go on by these states; return a line for each that was.

        `poll` is the number of the look at the queue: by one look a job is released once.
        """
        now = time.monotonic()
        try:
            is_full = find_full_disk(self._run.path, RUN_BYTES) != ""
        except OSError:
            is_full = True
        if is_full:
            self._due = now + PAUSE_SECONDS
        if is_full or now < self._due:
            return []
        held = [state for state in states if state.state == PENDING]
        lines = [*self._release_groups(held, poll), *self._release_unlaunched(held, poll)]
        if held:
            # a controller that is away is asked no more often
            self._due = now + PAUSE_SECONDS
        return lines

    def _release_groups(self, held: Sequence[TaskState], poll: int) -> Iterator[str]:
        """Release the groups that their own job scripts held."""
        groups = {
            state.task.group_id: state.array_job_id
            for state in held
            if state.detail == HELD_BY_USER
        }
        for group_id, array_job_id in groups.items():
            cause = read_hold(self._run.path, group_id)
            if self._release(array_job_id, self._count_releases(cause), poll):
                with suppress(OSError):
                    forget_hold(self._run.path, group_id)
                yield f"array job {array_job_id} was held ({cause}), and is released"

    def _release_unlaunched(self, held: Sequence[TaskState], poll: int) -> Iterator[str]:
        """Release what Slurm held because a node could not start it."""
        for state in held:
            if _LAUNCH_FAILED.search(state.detail) is None:
                continue
            # a plain job is no element of an array
            is_only = self._run.count_jobs(state.task.group_id) == 1
            job_id = state.array_job_id if is_only else state.task.find_job_id(state.array_job_id)
            if self._release(job_id, self._launch_tries, poll):
                yield f"{job_id} was held ({state.detail}), and is released"

    def _count_releases(self, cause: str) -> int:
        """How often a group may be released that its job scripts held for this cause."""
        if is_for_want_of_room(cause):
            return RELEASES
        # a disk that was full for a moment may have kept the words
        return self._launch_tries if _WORDLESS.fullmatch(cause) else 0

    def _release(self, job_id: str, limit: int, poll: int) -> bool:
        """Release a job unless it was as often as it may be, or by this poll, or Slurm refuses."""
        if self._counts.get(job_id, 0) >= limit or self._polls.get(job_id) == poll:
            return False
        try:
            cluster = slurm_client.name_cluster(self._run.manifest.clusters)
            slurm_client.run_client(["scontrol", *cluster, "release", job_id])
        except SchedulerError:
            return False
        self._counts[job_id] = self._counts.get(job_id, 0) + 1
        self._polls[job_id] = poll
        return True
