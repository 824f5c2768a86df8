"""Array tasks that failed or were lost -> new attempts, staged beside the old ones."""

from pathlib import Path

from dlperf_slurm.config.site import Site
from dlperf_slurm.config.toml_tables import Reporter, read_toml, validate
from dlperf_slurm.contract.json_files import SCHEMA_VERSION
from dlperf_slurm.errors import InputError, SchedulerError, raise_problems
from dlperf_slurm.jobs.journal import hold_submit_lock
from dlperf_slurm.jobs.plan import ArrayTask, group_array_tasks
from dlperf_slurm.jobs.run_directory import MATRIX_FILE, SITE_FILE, Run, list_latest_attempts
from dlperf_slurm.jobs.stage import stage_groups
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import read_matrix
from dlperf_slurm.scheduler.track import COMPLETED, Tracker


def stage_retry(run: Run) -> int:
    """Stage a further attempt for each repeat whose latest one ended without success.

    The run's own copies of matrix and site decide, whatever became of the originals. Returns how
    many array tasks were staged; what is pending or running is left alone.
    Raises InputError for a run whose files, and so its worker, are of an earlier version;
    SchedulerError when the scheduler does not say what is pending or running, or when another
    process is submitting the run.
    """
    if run.schema_version != SCHEMA_VERSION:
        raise InputError(
            f"{run.path}: was made by dlperf_slurm {run.manifest.tool}, whose worker it "
            "keeps for further attempts; retry it with that version, or measure it anew: "
            f"dlperf-slurm submit {run.path / MATRIX_FILE}"
        )
    with hold_submit_lock(run.path):
        return _stage_retry(run)


def _stage_retry(run: Run) -> int:
    tracker = Tracker(run)
    states = {state.task: state for state in tracker.refresh(ask_scheduler=True)}
    if tracker.scheduler_error:
        raise SchedulerError(tracker.scheduler_error)
    ended = [
        task
        for task in list_latest_attempts(list(states))
        if states[task].is_final and states[task].state != COMPLETED
    ]
    if not ended:
        return 0
    cases = {
        case.case_id: case for case in expand_matrix(read_matrix(run.path / MATRIX_FILE)).cases
    }
    site = read_frozen_site(run.path / SITE_FILE)
    tasks = [ArrayTask(cases[task.case_id], task.repeat, task.attempt + 1) for task in ended]
    # array jobs are made no larger than the cluster took them before
    largest = max(len(run.read_tasks(group_id)) for group_id in run.list_group_ids())
    groups = group_array_tasks(tasks, site, largest, suffix=_choose_suffix(run))
    stage_groups(run.path, run.path, run.run_id, groups, site)
    return len(tasks)


def read_frozen_site(path: Path) -> Site:
    """The effective site that a run was staged with; raises InputError for a broken file."""
    toml = read_toml(path)
    reporter = Reporter(toml)
    site = validate(Site, toml.data, reporter)
    raise_problems(reporter.problems)
    assert site is not None, "no site without a problem"
    return site


def _choose_suffix(run: Run) -> str:
    taken = run.list_group_ids()
    number = 2
    while any(f"-try{number}" in group_id for group_id in taken):
        number += 1
    return f"-try{number}"
