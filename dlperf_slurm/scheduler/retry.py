"""Stage further attempts of array tasks that failed or were lost, beside the old attempts."""

import itertools
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dlperf_slurm.config.overrides import get_job_kind
from dlperf_slurm.config.site import Retry, Site, read_frozen_site
from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.errors import EnvironmentMissingError, InputError, SchedulerError
from dlperf_slurm.jobs.disk_space import (
    RUN_BYTES,
    TASK_BYTES,
    check_free,
    describe_full_disk,
    is_disk_full_reason,
)
from dlperf_slurm.jobs.failed_nodes import (
    NODE_FAIL,
    UNHEALTHY,
    describe_too_few,
    drop_usable_nodes,
    exclude_nodes,
    parse_failed_nodes,
)
from dlperf_slurm.jobs.grouping import ArrayTask, group_by_node
from dlperf_slurm.jobs.journal import LOCK_TIMEOUT_SECONDS, hold_submit_lock
from dlperf_slurm.jobs.manifest import MANIFEST_FILE
from dlperf_slurm.jobs.plan import list_missing_environments
from dlperf_slurm.jobs.run_directory import (
    MATRIX_FILE,
    SITE_FILE,
    Run,
    RunTask,
    list_latest_attempts,
)
from dlperf_slurm.jobs.stage import stage_groups
from dlperf_slurm.matrix.expand import MatrixCase, expand_matrix
from dlperf_slurm.matrix.file import read_matrix
from dlperf_slurm.scheduler.follow import AWAY_SECONDS
from dlperf_slurm.scheduler.state import COMPLETED, FAILED, JOB_ENDED_EARLY, PREEMPTED, TaskState
from dlperf_slurm.scheduler.track import Tracker

# messages of srun, slurmstepd and our script if a launch failed, and failures without a message,
# as on a disk that was full for a moment
_LAUNCH_FAILURE = re.compile(
    r"^no record, exit code (?:69|126|127|131)\b|launch failed|Unable to create step|"
    r"^a rank could not be started\b|python cannot be run on|no rank said why; (?!.*; srun: )|"
    r"^NonZeroExitCode$|^JobLaunchFailure\b|Stale file handle"
)
_PORT_TAKEN = re.compile(r"\bEADDRINUSE\b|[Aa]ddress already in use|^a port was taken")
NO_RETRY = Retry(node_fail=0, launch=0, preempted=0)
DISK_POLL_SECONDS = 5.0


def stage_retry(
    run: Run, bad_nodes: Sequence[str] = (), report: Callable[[str], None] = print
) -> int:
    """Stage a further attempt for each repeat whose latest attempt ended without success.

    Its jobs exclude `bad_nodes` if the site has enough others, else `report` gets a message.
    Returns how many array tasks were staged, to be submitted later. Raises EnvironmentMissingError
    if an environment is missing; SchedulerError if the scheduler does not answer, or another
    process is submitting the run.
    """
    with hold_submit_lock(run.path):
        ended = _list_ended(run)
        if ended:
            site = read_site(run)
            kinds = {case.case_id: get_job_kind(case.axes) for case in run.manifest.cases}
            sites = site.resolve_each(kinds[task.case_id] for task in ended)
            if missing := list_missing_environments(sites):
                raise EnvironmentMissingError("\n".join(missing))
            needed = _count_needed(run, list(ended))
            if run.manifest.nodes:
                # a sweep names the node of each job
                bad_nodes = ()
            excluding = exclude_nodes(site, bad_nodes, needed)
            if bad_nodes and excluding is site:
                report(describe_too_few(site, needed))
            _stage(run, list(ended), excluding)
    return len(ended)


def stage_retry_by_cause(run: Run, report: Callable[[str], None]) -> int:
    """Stage a further attempt for each failed task, if the site's [retry] allows one for its cause.

    Tasks that did not start because their shared job ended early are always retried. Nodes named as
    the cause are excluded if there are enough others. Waits while a disk is full, up to
    AWAY_SECONDS. Returns how many array tasks were staged. Raises InputError if the disk is still
    full then; SchedulerError if the scheduler does not answer, or another process is submitting the
    run.
    """
    limits = read_retry_limits(run)
    if limits == NO_RETRY and not any(task.shared_job is not None for task in run.read_all_tasks()):
        return 0
    site = read_site(run)
    deadline = time.monotonic() + AWAY_SECONDS
    told = ""
    while True:
        # locked for each check only: `cancel` must not wait for free disk space
        with hold_submit_lock(run.path, timeout_seconds=LOCK_TIMEOUT_SECONDS):
            again = [
                state
                for task, state in _list_ended(run).items()
                if task.attempt <= _count_tries(state, limits)
            ]
            if not again:
                return 0
            full = describe_full_disk(run.path, RUN_BYTES + TASK_BYTES * len(again))
            if not full or time.monotonic() > deadline:
                return _stage_again(run, site, again, report)
        if not told:
            told = f"{full}: {len(again)} array tasks will be retried when there is free space"
            report(told)
        time.sleep(DISK_POLL_SECONDS)


def read_retry_limits(run: Run) -> Retry:
    """Return how often `wait` retries a failure of each cause; NO_RETRY for never.

    Never on site `local`, for imported logs, or in a sweep, where a node that fails is a result.
    """
    if not (run.path / SITE_FILE).exists() or run.manifest.nodes:
        return NO_RETRY
    site = read_site(run)
    return NO_RETRY if run.manifest.scheduler == "local" else site.retry


def _stage_again(
    run: Run, site: Site, again: Sequence[TaskState], report: Callable[[str], None]
) -> int:
    """Stage a further attempt for each task in `again`, in jobs without the nodes that failed.

    Returns the number of tasks. `report` gets messages. Raises InputError for a full disk.
    """
    check_free(run.path, RUN_BYTES + TASK_BYTES * len(again))
    # the nodes of a preempted job, or where a port was taken, are not the cause
    failed = [
        state
        for state in again
        if state.state != PREEMPTED and not _PORT_TAKEN.search(state.detail)
    ]
    named = {node for state in failed for node in parse_failed_nodes(state.state, state.detail)}
    nodes = drop_usable_nodes(dict.fromkeys(sorted(named), ""), run.manifest.clusters, report)
    tasks = [state.task for state in again]
    excluding = exclude_nodes(site, nodes, _count_needed(run, tasks))
    _stage(run, tasks, excluding)
    without = f", excluding {', '.join(nodes)}" if excluding != site else ""
    report(f"retrying {len(again)} array tasks{without}; the first failed: {again[0].detail}")
    return len(again)


def _count_needed(run: Run, tasks: Sequence[RunTask]) -> int:
    """Return how many nodes the largest of these array tasks needs."""
    axes = {case.case_id: case.axes for case in run.manifest.cases}
    return max(parse_topology(axes[task.case_id].topology).nodes for task in tasks)


def _count_tries(state: TaskState, limits: Retry) -> int:
    """Return how many further attempts the limits allow for a task, by the cause of its failure."""
    if state.is_final and state.detail == JOB_ENDED_EARLY:
        # no limit: each shared job that ends early has run at least one array task
        return state.task.attempt
    if state.state in (NODE_FAIL, UNHEALTHY):
        return limits.node_fail
    if state.state == PREEMPTED:
        return limits.preempted
    if state.state == FAILED and (
        _LAUNCH_FAILURE.search(state.detail)
        or _PORT_TAKEN.search(state.detail)
        or is_disk_full_reason(state.detail)
    ):
        return limits.launch
    return 0


def _list_ended(run: Run) -> Mapping[RunTask, TaskState]:
    """Return the tasks that are latest attempts and have ended, each with its state.

    Repeats of which any attempt was successful are left out. Raises SchedulerError if the scheduler
    does not answer.
    """
    tracker = Tracker(run)
    states = {state.task: state for state in tracker.refresh(ask_scheduler=True)}
    if tracker.scheduler_error:
        raise SchedulerError(tracker.scheduler_error)
    # an attempt that was given up as LOST may have completed after all
    measured = {
        (task.case_id, task.repeat) for task, state in states.items() if state.state == COMPLETED
    }
    return {
        task: states[task]
        for task in list_latest_attempts(list(states))
        if states[task].is_final and (task.case_id, task.repeat) not in measured
    }


def _stage(run: Run, ended: Sequence[RunTask], site: Site) -> None:
    cases = read_cases(run)
    tasks = [ArrayTask(cases[task.case_id], task.repeat, task.attempt + 1) for task in ended]
    # no array job is larger than those that the cluster accepted before
    largest = max(run.count_jobs(group_id) for group_id in run.list_group_ids())
    groups = group_by_node(tasks, run.manifest.nodes, site, largest, suffix=_choose_suffix(run))
    stage_groups(run.path, run.path, run.manifest, groups, site)


def read_cases(run: Run) -> dict[str, MatrixCase]:
    """Read the cases of a run's matrix by case id, each with the profiler of `submit --profile`.

    Raises InputError for mistakes in the matrix.
    """
    profilers = {case.case_id: case.profiler for case in run.manifest.cases}
    return {
        case.case_id: replace(case, profiler=profilers.get(case.case_id, ""))
        for case in expand_matrix(read_matrix(run.path / MATRIX_FILE)).cases
    }


def read_site(run: Run) -> Site:
    """Read a run's site settings; raises InputError if its manifest has another scheduler."""
    site = read_frozen_site(run.path / SITE_FILE)
    if site.scheduler != run.manifest.scheduler:
        raise InputError(
            f"{run.path / SITE_FILE}: scheduler = {site.scheduler!r}, but {MANIFEST_FILE} has "
            f"{run.manifest.scheduler!r}; one of the files was changed after the run was made"
        )
    return site


def _choose_suffix(run: Run) -> str:
    """Return a suffix such as "-try2" for ids of new groups, which no group of the run has yet."""
    taken = "\n".join(run.list_group_ids())
    return next(f"-try{n}" for n in itertools.count(2) if f"-try{n}" not in taken)
