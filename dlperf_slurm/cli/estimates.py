"""Estimate from earlier runs how long a plan takes, and which slowdowns its repeats can detect."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.errors import InputError
from dlperf_slurm.plain_text import count_things

# how many cases over their time limit an error lists
MAX_SHOWN = 5

if TYPE_CHECKING:
    from argparse import Namespace

    from dlperf_slurm.jobs.plan import Plan, PlannedMatrix


def describe_estimates(matrix: "PlannedMatrix", results: Path, is_interleaved: bool) -> list[str]:
    """Return lines on how long the run will take, and on which slowdowns it can detect.

    Both are estimated from earlier runs in the folder `results`, if there are any. An interleaved
    run is compared with its counterpart pair by pair.
    """
    from dlperf_slurm.results.duration_history import describe_time, get_task_seconds

    plan, loaded = matrix.plan, matrix.loaded
    seconds = get_task_seconds(plan, loaded.name, results)
    time = describe_time(plan, seconds, is_local=loaded.site.scheduler == "local")
    return [*([time] if time else []), *_describe_power(matrix, results, is_interleaved)]


def describe_local_run(matrix: "PlannedMatrix", options: "Namespace") -> list[str]:
    """Return lines that describe a local run before it starts: site, cases, repeats, time.

    Raises InputError if array tasks would exceed their time limit, estimated from earlier runs or
    from the FLOPs of their model.
    """
    from dlperf_slurm.config.site import explain_choice
    from dlperf_slurm.plain_text import write_duration
    from dlperf_slurm.results.duration_history import (
        describe_time,
        get_task_seconds,
        list_too_long,
    )
    from dlperf_slurm.results.time_lower_bounds import compute_least_seconds

    plan, loaded = matrix.plan, matrix.loaded
    seconds = get_task_seconds(plan, loaded.name, options.results)
    least = compute_least_seconds(plan)
    too_long = list_too_long(plan, seconds, "takes about")
    too_long += list_too_long(plan, least, "takes at least")
    if too_long:
        raise InputError(
            "\n".join(too_long[:MAX_SHOWN]) + "\n"
            "Nothing was started. Exclude these cases or raise the limit: --set "
            "time_limit_minutes.default=MINUTES"
        )
    time = describe_time(plan, seconds, is_local=True)
    if matrix.within_seconds:
        time += (
            f"; after {write_duration(matrix.within_seconds)} (--within), only retries and the "
            "first repeat of each case are started"
        )
    return [f"site {loaded.name}: {explain_choice(options.site)}", *_describe_cases(plan), time]


def _describe_cases(plan: "Plan") -> list[str]:
    """Return the numbers of cases, array tasks and left-out cases of a plan, a line each."""
    repeats = sorted({case.protocol.repeats for case in plan.cases})
    each = count_things(repeats[-1], "repeat")
    each = each if len(repeats) == 1 else f"{repeats[0]} to {each}"
    cases, tasks = len(plan.cases), plan.array_task_count
    lines = [f"{count_things(cases, 'case')}, {each} each: {count_things(tasks, 'array task')}"]
    for reason, count in Counter(left_out.reason for left_out in plan.left_out).items():
        lines.append(f"left out: {count_things(count, 'case')}: {reason}")
    return lines


def _describe_power(matrix: "PlannedMatrix", results: Path, is_interleaved: bool) -> list[str]:
    """Return lines that say which slowdowns the planned repeats can detect.

    They follow from the spread of throughputs that the site had in earlier runs.
    """
    from dlperf_slurm.jobs.plan import count_blocks
    from dlperf_slurm.jobs.run_directory import list_run_ids
    from dlperf_slurm.results.detectable_slowdown import describe_power

    planned, loaded = {}, matrix.loaded
    for case in matrix.plan.cases:
        blocks, repeats = count_blocks(case, loaded.site), case.protocol.repeats
        planned[case.case_id] = (blocks, "block") if blocks > 1 else (repeats, "repeat")
    if not list_run_ids(results):
        return describe_power(planned, (), is_interleaved)
    from dlperf_slurm.results.history.run_cache import read_run_cache

    entries = read_run_cache(results).list_entries()
    here = [entry for entry in entries if entry["site_name"] == loaded.name]
    measured = [(entry["case_id"], entry["samples_per_s"]) for entry in here]
    return describe_power(planned, measured, is_interleaved)
