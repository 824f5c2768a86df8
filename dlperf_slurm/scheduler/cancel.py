"""A run -> its array jobs cancelled, one whose submission was cut short among them."""

from dlperf_slurm import slurm_client
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.jobs.journal import CANCELLED, JOURNAL_FILE, Event, append_event, hold_submit_lock
from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.scheduler import local
from dlperf_slurm.scheduler.submit import find_cut_short
from dlperf_slurm.scheduler.track import Tracker


def cancel_run(run: Run) -> int:
    """Cancel all array jobs of the run that have not ended; returns how many array tasks that ends.

    Raises SchedulerError when another process is submitting the run, so that nothing of it slips
    through, when the scheduler refuses, when a local run is another host's, and when what the
    journal calls an id of a job is none.
    """
    with hold_submit_lock(run.path):
        find_cut_short(run)
        states = Tracker(run).refresh(ask_scheduler=False)
        waiting = [state for state in states if state.array_job_id and not state.is_final]
        array_job_ids = sorted({state.array_job_id for state in waiting})
        if not array_job_ids:
            return 0
        hosts = {local.find_other_host(array_job_id) for array_job_id in array_job_ids} - {""}
        if run.manifest.scheduler == "local" and hosts:
            raise SchedulerError(
                f"{run.run_id} runs on {', '.join(sorted(hosts))}; cancel it there"
            )
        if run.manifest.scheduler != "local":
            slurm_client.check_job_ids(array_job_ids, run.path / JOURNAL_FILE)
        detail = " ".join(array_job_ids)
        append_event(run.path, Event(CANCELLED, format_now(), detail=detail))
        if run.manifest.scheduler == "local":
            for array_job_id in array_job_ids:
                local.terminate(array_job_id, run.path)
        else:
            slurm_client.cancel_jobs(array_job_ids)
    return len(waiting)
