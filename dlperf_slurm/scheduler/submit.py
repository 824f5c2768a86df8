"""Submit a staged group as one array job, journaled before and after."""

import contextlib
import math
import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Optional

from dlperf_slurm import slurm_client
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.errors import InputError, JournalError, SchedulerError
from dlperf_slurm.files.archive_lookup import has_file
from dlperf_slurm.jobs.journal import (
    CANCELLED,
    REFUSED,
    STAGED,
    SUBMITTED,
    SUBMITTING,
    Event,
    append_event,
    append_reserved,
    read_journal,
    read_whole_journal,
)
from dlperf_slurm.jobs.manifest import compute_block
from dlperf_slurm.jobs.markers import read_claim
from dlperf_slurm.jobs.run_directory import HARNESS_FILE, SITE_FILE, Run
from dlperf_slurm.program import COMMAND
from dlperf_slurm.scheduler import local
from dlperf_slurm.scheduler.queue import make_queue_watcher
from dlperf_slurm.scheduler.sbatch_errors import is_surely_refused

if TYPE_CHECKING:
    from submitit.core.core import Executor


def recover_interrupted(run: Run) -> dict[str, str]:
    """Find the array jobs of interrupted submissions, and write their ids to the journal.

    Returns job ids by group. Interrupted: sbatch was called, but the journal has no job id. Only
    the process that holds the submit lock may call this function.
    """
    found = {}
    for group_id, last in find_unsubmitted(run).items():
        array_job_id = find_submitted(run, group_id) if last != STAGED else None
        if array_job_id is not None:
            _journal_submitted(run, group_id, array_job_id)
            found[group_id] = array_job_id
    return found


def find_unsubmitted(run: Run) -> dict[str, str]:
    """Return the groups without a job id in the journal, in staging order, with their last event.

    A group whose last event is REFUSED or SUBMITTING may be in the queue after all, as may any
    group if the journal has lost lines; it then has SUBMITTING. A group that was refused for a
    limit on jobs is surely not in the queue, and has STAGED.
    """
    events, is_whole = read_whole_journal(run.path)
    last = dict.fromkeys(run.list_group_ids(), STAGED if is_whole else SUBMITTING)
    for event in events:
        if event.event in (SUBMITTING, REFUSED, SUBMITTED):
            is_out = event.event == REFUSED and is_surely_refused(event.detail)
            last[event.group_id] = STAGED if is_out else event.event
    return {group_id: name for group_id, name in last.items() if name != SUBMITTED}


def has_unsubmitted_retry(run: Run, refused: Collection[str]) -> bool:
    """Return whether further attempts are staged that were neither submitted nor cancelled.

    Another process submits them now, or was killed before it did. `refused` groups do not count.
    """
    if any(event.event == CANCELLED for event in read_journal(run.path)):
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


def _make_executor(run: Run, group_id: str, lock: int) -> "Executor":
    # imports submitit, which only a submission needs
    from dlperf_slurm.scheduler.executors import LocalArrayExecutor, SlurmArrayExecutor

    harness = run.path / HARNESS_FILE
    if not has_file(harness, run.path):
        raise InputError(f"{harness}: is missing; was the whole run directory copied?")
    if run.manifest.scheduler == "local":
        return LocalArrayExecutor(run, group_id, read_time_limit(run, group_id))
    try:
        script, inherit = run.get_script_path(group_id), run.manifest.inherit
        return SlurmArrayExecutor(script, lock, get_dependencies(run, group_id), inherit)
    except RuntimeError as error:
        # submitit raises it if srun is not on PATH
        raise SchedulerError(
            f"{group_id} was not submitted: {error}; submit from a login node"
        ) from error


def read_time_limit(run: Run, group_id: str) -> local.TimeLimit:
    """Read the time limit of a group's array tasks from the run's site; raises InputError."""
    from dlperf_slurm.config.overrides import get_job_kind
    from dlperf_slurm.config.site import read_frozen_site
    from dlperf_slurm.jobs.grouping import get_warning_seconds

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


def get_dependencies(run: Run, group_id: str) -> list[str]:
    """Return the ids of the array jobs that a group has to wait for (`--dependency=afterany`).

    They are those of the previous block of the run (see `get_blocks`), and of the run interleaved
    with this one, those of the block whose turn comes before.
    """
    block = get_blocks(run).get(group_id)
    if block is None:
        return []
    job_ids = _list_array_jobs(run, block - 1)
    other = run.find_interleaved()
    return job_ids if other is None else job_ids + _list_array_jobs(other, block - _get_lead(run))


def _list_array_jobs(run: Run, block: int) -> list[str]:
    blocks = get_blocks(run)
    return [
        event.array_job_id
        for event in read_whole_journal(run.path)[0]
        if event.event == SUBMITTED and blocks.get(event.group_id) == block
    ]


def _get_lead(run: Run) -> int:
    """Return 1 if a run has the first turn of two interleaved runs: it is a block ahead; else 0."""
    return 1 if run.run_id == run.manifest.interleaved[0] else 0


def find_last_block(run: Run) -> float:
    """Return the number of the last block that may be submitted now.

    The next one has to wait for the run that is interleaved with this one. Infinite if no run is,
    or if that run is submitted to its end or cancelled.
    """
    other = run.find_interleaved()
    if other is None or any(event.event == CANCELLED for event in read_journal(other.path)):
        return math.inf
    blocks = get_blocks(other)
    missing = (blocks[name] for name in find_unsubmitted(other) if name in blocks)
    return min(missing, default=math.inf) + _get_lead(run) - 1


def submit_group(run: Run, group_id: str, lock: int) -> tuple[str, str]:
    """Submit a group, journaled before and after; only the process that holds `lock` may call it.

    Returns (id of the array job, ""), or ("", why it was refused). Raises SchedulerError,
    JournalError, or InputError if a file that the jobs need is missing.
    """
    executor = _make_executor(run, group_id, lock)
    append_event(run.path, Event(SUBMITTING, format_now(), group_id=group_id))
    array_job_id, refusal = _call_sbatch(run, group_id, executor)
    if array_job_id:
        _journal_submitted(run, group_id, array_job_id)
        return array_job_id, ""
    # without this event a later submission looks the job up, as the last event is SUBMITTING
    with contextlib.suppress(JournalError):
        append_event(run.path, Event(REFUSED, format_now(), group_id=group_id, detail=refusal))
    return "", refusal


def _call_sbatch(run: Run, group_id: str, executor: "Executor") -> tuple[str, str]:
    """Submit a group with its executor; return its job id and "", or "" and Slurm's message."""
    from dlperf_slurm.scheduler.executors import ScriptCall

    script = run.get_script_path(group_id)
    try:
        with executor.batch():
            jobs = [
                executor.submit(ScriptCall(script, task.array_task_id))
                for task in run.read_tasks(group_id)
            ]
    except SchedulerError as error:
        if is_surely_refused(str(error)):
            return "", str(error)
        # the controller may have accepted the job before "Socket timed out"
        try:
            array_job_id = find_submitted(run, group_id)
        except SchedulerError as silence:
            raise SchedulerError(
                f"{error}\nIt is not known whether Slurm accepted the job: {silence}"
            ) from silence
        return (array_job_id, "") if array_job_id is not None else ("", str(error))
    return jobs[0].job_id.rpartition("_")[0], ""


def _journal_submitted(run: Run, group_id: str, array_job_id: str) -> None:
    # squeue is called with --user, and other users of the group may resume the run
    event = Event(SUBMITTED, format_now(), group_id, array_job_id, detail=str(os.geteuid()))
    try:
        append_reserved(run.path, event)
    except JournalError as error:
        raise JournalError(
            f"{group_id}: array job {array_job_id} was submitted, but {error}\n"
            f"The job continues. When the journal can be written again: {COMMAND} resume "
            f"{run.path}"
        ) from error
