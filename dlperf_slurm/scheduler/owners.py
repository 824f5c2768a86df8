"""Claims, markers and the queue -> which array job an array task belongs to.

The journal knows the job that sbatch answered with. A controller may have taken the array twice,
or the journal may have lost the line: then the job that holds the attempt's claim is followed.
"""

from collections.abc import Mapping

from dlperf_slurm import slurm_client
from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.jobs.markers import read_claim, read_marker
from dlperf_slurm.jobs.run_directory import Run, RunTask, make_job_name
from dlperf_slurm.scheduler.queue import ProcessWatcher, Watcher
from dlperf_slurm.scheduler.states import FINAL_STATES, UNKNOWN


class Owners:
    """The array jobs of a run's array tasks.

    `by_group` is what the journal knows; jobs that are found otherwise are added to it where it
    knows none.
    """

    def __init__(self, run: Run, by_group: Mapping[str, str], watcher: Watcher) -> None:
        self._run = run
        self.by_group = dict(by_group)
        self._watcher = watcher
        self._group_ids = {
            make_job_name(run.run_id, group_id): group_id for group_id in run.list_group_ids()
        }
        self._rivals: dict[str, list[str]] = {}
        self._named: set[str] = set()
        self._owners: dict[str, str] = {}

    @property
    def has_rivals(self) -> bool:
        """Whether array jobs are in the queue that the journal does not know."""
        return bool(self._rivals)

    def look_for_rivals(self) -> None:
        """Ask whose they are of array jobs in the queue that the journal does not know."""
        if isinstance(self._watcher, ProcessWatcher):
            return
        known = {*self.by_group.values(), *self._named}
        for array_job_id in sorted(self._watcher.list_array_job_ids() - known):
            try:
                command = ["squeue", "--noheader", "--states=all", f"--jobs={array_job_id}", "-o%j"]
                cluster = slurm_client.name_cluster(self._run.manifest.clusters)
                names = slurm_client.run_client([*command, *cluster]).strip()
            except SchedulerError:
                # it has left the queue meanwhile
                continue
            self._named.add(array_job_id)
            # the first line may name the cluster
            group_id = self._group_ids.get(names.rpartition("\n")[2].strip())
            if group_id is not None:
                self.by_group.setdefault(group_id, array_job_id)
                self._rivals.setdefault(group_id, []).append(array_job_id)

    def find_job_id(self, task: RunTask, newest_start: int) -> str:
        """The id of the array job to follow for an array task; "" where none is known."""
        journaled = self.by_group.get(task.group_id, "")
        rivals = self._rivals.get(task.group_id, [])
        if isinstance(self._watcher, ProcessWatcher):
            return journaled
        if journaled and not rivals and not self._is_over(journaled, task):
            return journaled
        owner = self._owners.get(task.marker) or self._find_owner(task, newest_start)
        if owner:
            self._owners[task.marker] = owner
            self.by_group.setdefault(task.group_id, owner)
            return owner
        job_ids = filter(None, (journaled, *rivals))
        waiting = [job_id for job_id in job_ids if not self._is_over(job_id, task)]
        return waiting[0] if waiting else journaled

    def _find_owner(self, task: RunTask, newest_start: int) -> str:
        """The job that started the task's newest start, or else has its claim; "" for none."""
        marker = read_marker(self._run.path, task.marker, "started", newest_start)
        job_id = (
            marker.job_id if marker is not None else read_claim(self._run.path / task.attempt_dir)
        )
        # what was run by hand belongs to no job
        return job_id if job_id is not None and slurm_client.is_job_id(job_id) else ""

    def _is_over(self, array_job_id: str, task: RunTask) -> bool:
        info = self._watcher.find_info(task.find_job_id(array_job_id))
        return info.get("State", "") in FINAL_STATES | {UNKNOWN}
