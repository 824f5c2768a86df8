"""Cancel a run's array jobs, submitted by any user, and report those that do not end."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from dlperf_slurm import slurm_client
from dlperf_slurm.errors import JournalError, SchedulerError
from dlperf_slurm.jobs import journal
from dlperf_slurm.jobs.markers import NO_MARKERS, OVER, list_markers
from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.scheduler import local
from dlperf_slurm.scheduler.queue import QueueWatcher, make_queue_watcher
from dlperf_slurm.scheduler.state import COMPLETING
from dlperf_slurm.scheduler.submit import find_unsubmitted, recover_interrupted
from dlperf_slurm.scheduler.track import Tracker

# how often, and how many seconds apart, the queue is checked after scancel
LOOKS = 5
LOOK_SECONDS = 1.0


def cancel_run(run: Run, warn: Callable[[str], None]) -> int:
    """Cancel all array jobs of a run that have not ended; return the number of their array tasks.

    Jobs of Slurm are looked up in the queue, not in the run's files, so that requeued jobs and jobs
    submitted twice are cancelled too; their end is awaited for a few seconds. Local processes get
    SIGTERM, and are not awaited. `warn` receives the error of a journal that cannot be written.
    Raises SchedulerError if another process is submitting the run, if the scheduler refuses or does
    not answer, if a job of Slurm does not end, or if another host runs a local run.
    """
    with journal.hold_submit_lock(run.path, must_write=False):
        try:
            recover_interrupted(run)
        except JournalError as error:
            warn(str(error))
        if run.manifest.scheduler == "local":
            return _cancel_local(run, warn)
        return _cancel_slurm(run, warn)


def _cancel_slurm(run: Run, warn: Callable[[str], None]) -> int:
    """Cancel a run's Slurm jobs; return the number of array tasks.

    Raises SchedulerError for jobs that are still active after LOOKS polls; COMPLETING counts as
    ended. `warn` gets an error of the journal.
    """
    watcher = make_queue_watcher(run, run.list_group_ids())
    before = _list_active(watcher)
    array_job_ids = sorted({job_id.partition("_")[0] for job_id in before}, key=int)
    if array_job_ids or find_unsubmitted(run):
        # also for groups without a job: the process that submits them reads the event and stops
        _journal(run, array_job_ids, warn)
    if not array_job_ids:
        return 0
    ending = _count_tasks(run, before)
    slurm_client.cancel_jobs(array_job_ids, run.manifest.clusters)
    for look in range(LOOKS):
        if look:
            time.sleep(LOOK_SECONDS)
        left = _list_active(watcher)
        if not left:
            return ending
    states = ", ".join(f"{job_id} {state}" for job_id, state in sorted(left.items())[:10])
    raise SchedulerError(
        f"{len(left)} of {len(before)} jobs of {run.run_id} are still running after scancel: "
        f"{states}"
    )


def _count_tasks(run: Run, job_ids: Collection[str]) -> int:
    """Count the unfinished array tasks of Slurm jobs such as "7_3"; tasks may share a job."""
    submitted = [
        event for event in journal.read_journal(run.path) if event.event == journal.SUBMITTED
    ]
    array_job_ids = {event.group_id: event.array_job_id for event in submitted}
    markers = list_markers(run.path)
    shared: Counter[str] = Counter()
    for task in run.read_all_tasks():
        job_id = task.get_job_id(array_job_ids.get(task.group_id, ""))
        kinds = {kind for _, kind in markers.get(task.marker, NO_MARKERS)}
        if task.shared_job is not None and job_id in job_ids and OVER not in kinds:
            shared[job_id] += 1
    return sum(shared.get(job_id, 1) for job_id in job_ids)


def _list_active(watcher: QueueWatcher) -> dict[str, str]:
    """Return the state of each queued or running job by id; jobs in COMPLETING are left out."""
    states = watcher.list_unended()
    return {job_id: state for job_id, state in states.items() if state != COMPLETING}


def _cancel_local(run: Run, warn: Callable[[str], None]) -> int:
    """Send SIGTERM to this host's processes of a run; return the number of unfinished array tasks.

    `warn` gets an error of the journal. Raises SchedulerError if another host started the run.
    """
    states = Tracker(run).refresh(ask_scheduler=False)
    waiting = [state for state in states if state.array_job_id and not state.is_final]
    array_job_ids = sorted({state.array_job_id for state in waiting})
    if not array_job_ids:
        return 0
    hosts = {local.find_other_host(array_job_id) for array_job_id in array_job_ids} - {""}
    if hosts:
        raise SchedulerError(
            f"{run.run_id} runs on {', '.join(sorted(hosts))}; cancel the run there"
        )
    _journal(run, array_job_ids, warn)
    for array_job_id in array_job_ids:
        local.terminate(array_job_id, run.path)
    return len(waiting)


def _journal(run: Run, array_job_ids: Sequence[str], warn: Callable[[str], None]) -> None:
    """Append to the journal that array jobs will be cancelled, before scancel is called.

    `warn` gets the error if the journal cannot be written.
    """
    try:
        journal.append_reserved(
            run.path, journal.Event(journal.CANCELLED, detail=" ".join(array_job_ids))
        )
    except JournalError as error:
        warn(str(error))
