"""A plan and earlier runs of the same cases on the same site -> expected time of its array tasks.

The time of an array task is that between its start and end markers: launching ranks and steps.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.times import parse_time
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.markers import NO_MARKERS, NO_START, list_markers, read_marker
from dlperf_slurm.jobs.plan import Plan
from dlperf_slurm.jobs.run_directory import Run, RunTask, list_run_ids, open_run
from dlperf_slurm.plain_text import write_duration
from dlperf_slurm.stats.median import compute_median

# only the newest runs are read: a results folder may have thousands
MOST_RUNS = 10
# fields of a case that must be equal for times to be comparable
_LIKE = ("model", "model_parameters", "device", "warmup_steps", "measured_steps",
    "min_warmup_seconds", "min_measured_seconds", "training", "axes")  # fmt: skip


def get_task_seconds(plan: Plan, site_name: str, results_dir: Path) -> dict[str, float]:
    """Return how long an array task took in an earlier run: median seconds by case id.

    For each case it is the newest run on this site that measured it with the same sizes and steps,
    among the newest MOST_RUNS runs. Cases without such a run are left out.
    """
    found: dict[str, float] = {}
    for run_id in list_run_ids(results_dir)[: -MOST_RUNS - 1 : -1]:
        try:
            run = open_run(results_dir / run_id)
            if run.manifest.site_name == site_name:
                left = {name: case for name, case in plan.job_cases.items() if name not in found}
                found.update(_read_run(run, left))
        except (InputError, OSError):
            # not a readable run: skip it
            continue
    return found


def _read_run(run: Run, wanted: Mapping[str, Case]) -> dict[str, float]:
    """Return the median seconds of an array task in one run, for the `wanted` cases that it has."""
    starts = list_markers(run.path)
    seconds: dict[str, list[float]] = {}
    for task in run.read_all_tasks():
        if task.case_id in wanted and _is_like(run, task, wanted[task.case_id]):
            numbers = [number for number, _ in starts.get(task.marker, NO_MARKERS)]
            took = _find_seconds(run, task, max(numbers, default=NO_START))
            if took is not None:
                seconds.setdefault(task.case_id, []).append(took)
    return {case_id: compute_median(values) for case_id, values in seconds.items()}


def _is_like(run: Run, task: RunTask, planned: Case) -> bool:
    """Return whether a task did the work of a planned case; equal case ids do not guarantee it."""
    # imported here, as there may be no earlier run
    from dlperf_slurm.jobs.case_file import read_planned_case

    try:
        case = read_planned_case(run.path, task)
    except OSError:
        return False
    return all(getattr(case, name) == getattr(planned, name) for name in _LIKE)


def _find_seconds(run: Run, task: RunTask, start: int) -> Optional[float]:
    """Return the duration of an array task in seconds; None unless it exited with 0.

    `start` numbers the executions of its job script: a requeued job is executed again.
    """
    began = read_marker(run.path, task.marker, "started", start)
    ended = read_marker(run.path, task.marker, "ended", start)
    if began is None or ended is None or ended.exit_code != 0:
        return None
    try:
        return (parse_time(ended.time) - parse_time(began.time)).total_seconds()
    except ValueError:
        return None


def list_too_long(plan: Plan, task_seconds: Mapping[str, float], verb: str) -> list[str]:
    """List the cases whose array tasks would exceed their time limit, as messages.

    `task_seconds` has the expected duration by case id. `verb` precedes the time in the text, such
    as "takes at least".
    """
    return [
        f"{case_id}: an array task {verb} {write_duration(seconds)}, but its time limit is "
        f"{plan.limit_minutes[case_id]} min"
        for case_id, seconds in task_seconds.items()
        if seconds > 60 * plan.limit_minutes[case_id]
    ]


def describe_time(plan: Plan, task_seconds: Mapping[str, float], is_local: bool) -> str:
    """Describe in one line how long all array tasks will take, or that the time is unknown.

    `task_seconds` has the expected duration by case id. On a cluster (not `is_local`) it is in
    node-hours, because queue time and parallelism are up to Slurm. "" for an empty plan.
    """
    known = [case for case in plan.cases if case.case_id in task_seconds]
    if not plan.cases:
        return ""
    if not known:
        limit = (
            f"at most {write_duration(3600 * plan.node_hours)}, from the time limits"
            if is_local
            else f"at most {plan.node_hours:.1f} node-hours, from the time limits"
        )
        return f"time: unknown, as no earlier run measured these cases; {limit}"
    seconds = sum(case.protocol.repeats * task_seconds[case.case_id] for case in known)
    node_seconds = sum(
        case.protocol.repeats * case.topology.nodes * task_seconds[case.case_id] for case in known
    )
    took = (
        f"{write_duration(seconds)}, running the array tasks one after the other"
        if is_local
        else f"{node_seconds / 3600:.2g} node-hours, plus the time in the queue"
    )
    if len(known) == len(plan.cases):
        return f"time: about {took}, from earlier runs of these cases"
    return (
        f"time: about {took} for {len(known)} of {len(plan.cases)} cases, from earlier runs; "
        "unknown for the others"
    )
