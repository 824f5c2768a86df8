"""Submit a staged group as one array job, journaled before and after."""

import contextlib
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Optional

from dlperf_slurm import slurm_client
from dlperf_slurm.errors import InputError, JournalError, SchedulerError
from dlperf_slurm.files.archive_lookup import has_file
from dlperf_slurm.jobs import journal
from dlperf_slurm.jobs.manifest import compute_block
from dlperf_slurm.jobs.markers import read_claim
from dlperf_slurm.jobs.run_directory import HARNESS_FILE, SITE_FILE, Run
from dlperf_slurm.program import COMMAND
from dlperf_slurm.scheduler import local
from dlperf_slurm.scheduler.queue import make_queue_watcher
from dlperf_slurm.scheduler.sbatch_errors import is_surely_refused


def recover_interrupted(run: Run) -> dict[str, str]:
    """Find the array jobs of interrupted submissions, and write their ids to the journal.

    Returns array job ids by group id. Interrupted: sbatch was called, but the journal has no job
    id. Only the process that holds the submit lock may call this function.
    """
    found = {}
    for group_id, last in find_unsubmitted(run).items():
        array_job_id = find_submitted(run, group_id) if last != journal.STAGED else None
        if array_job_id is not None:
            _journal_submitted(run, group_id, array_job_id)
            found[group_id] = array_job_id
    return found


def find_unsubmitted(run: Run) -> dict[str, str]:
    """Return the ids of groups without a job id in the journal, in staging order -> last event.

    A group whose last event is REFUSED or SUBMITTING may be in the queue after all, as may any
    group if the journal has lost lines; it then has SUBMITTING. A group that was refused for a
    limit on jobs is surely not in the queue, and has STAGED.
    """
    events, is_whole = journal.read_whole_journal(run.path)
    last = dict.fromkeys(run.list_group_ids(), journal.STAGED if is_whole else journal.SUBMITTING)
    for event in events:
        if event.event in (journal.SUBMITTING, journal.REFUSED, journal.SUBMITTED):
            is_out = event.event == journal.REFUSED and is_surely_refused(event.detail)
            last[event.group_id] = journal.STAGED if is_out else event.event
    return {group_id: name for group_id, name in last.items() if name != journal.SUBMITTED}


def has_unsubmitted_retry(run: Run, refused: Collection[str]) -> bool:
    """Return whether further attempts are staged that were neither submitted nor cancelled.

    Another process submits them now, or was killed before it did. `refused` groups do not count.
    """
    if any(event.event == journal.CANCELLED for event in journal.read_journal(run.path)):
        return False
    group_ids = find_unsubmitted(run).keys() - refused
    return any(run.read_tasks(group_id)[0].attempt > 1 for group_id in group_ids)


def find_submitted(run: Run, group_id: str) -> Optional[str]:
    """Return the array job id of a group whose submission was interrupted; None without a job.

    The id is in the claims of the group's array tasks, or from a job of the group's name in Slurm.
    """
    if run.manifest.scheduler == "local":
        return local.read_claim(run.path, group_id)
    for task in run.read_tasks(group_id):
        job_id = read_claim(run.path / task.attempt_dir)
        if job_id is not None and slurm_client.is_job_id(job_id):
            return job_id
    return make_queue_watcher(run, [group_id]).find_array_job_id()


def _prepare(run: Run, group_id: str, lock: int, awaited: Sequence[str]) -> Callable[[], str]:
    """Return a function that submits a group and returns its job id; raises as `submit_group`."""
    harness = run.path / HARNESS_FILE
    if not has_file(harness, run.path):
        raise InputError(f"{harness}: is missing; was the whole run directory copied?")
    if run.manifest.scheduler == "local":
        limit = read_time_limit(run, group_id)
        return lambda: local.start_array_job(run, group_id, limit)
    # imports submitit, which only a submission needs
    from dlperf_slurm.scheduler.executors import SlurmArrayExecutor

    script, inherit = run.get_script_path(group_id), run.manifest.inherit
    try:
        executor = SlurmArrayExecutor(script, lock, awaited, inherit)
    except RuntimeError as error:
        # submitit raises it if srun is not on PATH
        raise SchedulerError(
            f"{group_id} was not submitted: {error}; submit from a login node"
        ) from error
    # the executor submits the script instead of a function
    return lambda: executor.submit(submit_group).job_id


def read_time_limit(run: Run, group_id: str) -> local.TimeLimit:
    """Read a group's time limit and its warning from the run's site; raises InputError."""
    from dlperf_slurm.config.overrides import get_job_kind
    from dlperf_slurm.config.site import read_frozen_site
    from dlperf_slurm.jobs.sbatch_options import get_warning_seconds

    axes = {case.case_id: case.axes for case in run.manifest.cases}
    kind = get_job_kind(axes[run.read_tasks(group_id)[0].case_id])
    site = read_frozen_site(run.path / SITE_FILE).resolve(kind)
    minutes = site.get_time_limit_minutes(kind.topology)
    return local.TimeLimit(60 * minutes, get_warning_seconds(minutes))


def get_blocks(run: Run) -> dict[str, int]:
    """Return the block number of each group of first attempts; {} if no case has several blocks.

    The repeats of a case are spread over blocks: array jobs that run one after the other.
    """
    blocks = {case.case_id: case.blocks for case in run.manifest.cases}
    if all(count == 1 for count in blocks.values()):
        return {}
    firsts = {group_id: run.read_tasks(group_id)[0] for group_id in run.list_group_ids()}
    return {
        group_id: compute_block(task.repeat, blocks[task.case_id])
        for group_id, task in firsts.items()
        if task.attempt == 1
    }


class BlockOrder:
    """The order in which the array jobs of a run start, block after block; read once for all.

    Each waits for those of the previous block (`--dependency=afterany`) and, of the run interleaved
    with this one, for those of the block whose turn comes before. `blocks` is that of `get_blocks`;
    `last` is the last block that may be submitted now: the next one has to wait for the other run.
    """

    def __init__(self, run: Run) -> None:
        self.blocks = get_blocks(run)
        self.last = math.inf
        self._jobs = _list_array_jobs(run, self.blocks)
        self._other_jobs: Mapping[int, Sequence[str]] = {}
        # the first of two interleaved runs is a block ahead
        self._lead = 0
        other = run.find_interleaved()
        if other is not None:
            self._lead = int(run.run_id == run.manifest.interleaved[0])
            blocks = get_blocks(other)
            self._other_jobs = _list_array_jobs(other, blocks)
            # a run that is submitted to its end, or cancelled, is not waited for
            if not any(
                event.event == journal.CANCELLED for event in journal.read_journal(other.path)
            ):
                missing = (blocks[name] for name in find_unsubmitted(other) if name in blocks)
                self.last = min(missing, default=math.inf) + self._lead - 1

    def list_awaited(self, group_id: str) -> list[str]:
        """Return the ids of the array jobs that a group has to wait for; [] if it need not wait."""
        if group_id not in self.blocks:
            return []
        block = self.blocks[group_id]
        return [*self._jobs.get(block - 1, ()), *self._other_jobs.get(block - self._lead, ())]

    def add(self, group_id: str, array_job_id: str) -> None:
        """Note the array job of a submitted group, so that groups of the next block wait for it."""
        if group_id in self.blocks:
            self._jobs.setdefault(self.blocks[group_id], []).append(array_job_id)


def _list_array_jobs(run: Run, blocks: Mapping[str, int]) -> dict[int, list[str]]:
    """Return the ids of the run's array jobs that are in the journal, by block."""
    found: dict[int, list[str]] = {}
    for event in journal.read_journal(run.path) if blocks else ():
        if event.event == journal.SUBMITTED and event.group_id in blocks:
            found.setdefault(blocks[event.group_id], []).append(event.array_job_id)
    return found


def submit_group(
    run: Run, group_id: str, lock: int, awaited: Sequence[str] = ()
) -> tuple[str, str]:
    """Submit a group, journaled before and after; only the process that holds `lock` may call it.

    `lock` is the descriptor of the submit lock. The array job starts when those in `awaited` have
    ended. Returns (id of the array job, ""), or ("", why it was refused). Raises SchedulerError,
    JournalError, or InputError if a file that the jobs need is missing.
    """
    submit = _prepare(run, group_id, lock, awaited)
    journal.append_event(run.path, journal.Event(journal.SUBMITTING, group_id=group_id))
    array_job_id, refusal = _call_sbatch(run, group_id, submit)
    if array_job_id:
        _journal_submitted(run, group_id, array_job_id)
        return array_job_id, ""
    # without this event a later submission looks the job up, as the last event is SUBMITTING
    with contextlib.suppress(JournalError):
        journal.append_event(
            run.path, journal.Event(journal.REFUSED, group_id=group_id, detail=refusal)
        )
    return "", refusal


def _call_sbatch(run: Run, group_id: str, submit: Callable[[], str]) -> tuple[str, str]:
    """Call `submit`, which submits a group; return its job id and "", or "" and Slurm's message."""
    try:
        return submit(), ""
    except SchedulerError as error:
        if is_surely_refused(str(error)):
            return "", str(error)
        # the controller may have accepted the job before "Socket timed out"
        try:
            array_job_id = find_submitted(run, group_id)
        except SchedulerError as silence:
            raise SchedulerError(
                f"{error}\nWhether Slurm accepted the job is unknown, as looking it up failed: "
                f"{silence}"
            ) from silence
        return (array_job_id, "") if array_job_id is not None else ("", str(error))


def _journal_submitted(run: Run, group_id: str, array_job_id: str) -> None:
    # record who submitted: squeue needs --user, and another user of the group may resume the run
    event = journal.Event(
        journal.SUBMITTED, group_id=group_id, array_job_id=array_job_id, detail=str(os.geteuid())
    )
    try:
        journal.append_reserved(run.path, event)
    except JournalError as error:
        raise JournalError(
            f"{group_id}: array job {array_job_id} was submitted, but {error}\n"
            f"The array job continues. When the journal can be written: {COMMAND} resume "
            f"{run.path}"
        ) from error
