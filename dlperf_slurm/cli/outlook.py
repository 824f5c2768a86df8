"""A plan and the runs that were before it -> what `plan` says of time, and of what it can tell."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlperf_slurm.config.site import LoadedSite
    from dlperf_slurm.jobs.plan import Plan


def describe_outlook(plan: "Plan", loaded: "LoadedSite", results: Path) -> list[str]:
    """How long the run will take, and which slowdowns its repeats will tell; a line for each."""
    from dlperf_slurm.results.earlier_times import describe_time, find_task_seconds

    seconds = find_task_seconds(plan, loaded.site, loaded.name, results)
    time = describe_time(plan, seconds, is_local=loaded.site.scheduler == "local")
    return [*([time] if time else []), *_describe_power(plan, loaded, results)]


def _describe_power(plan: "Plan", loaded: "LoadedSite", results: Path) -> list[str]:
    """What the repeats will tell, by the spread of earlier runs in the results folder."""
    from dlperf_slurm.jobs.plan import count_blocks
    from dlperf_slurm.jobs.run_directory import list_run_ids
    from dlperf_slurm.results.detectable import PlannedRepeats, describe_power

    planned = []
    for case in plan.cases:
        blocks, repeats = count_blocks(case, loaded.site), case.protocol.repeats
        unit = ("block", blocks) if blocks > 1 else ("repeat", repeats)
        planned.append(PlannedRepeats(case.case_id, unit[1], unit[0]))
    if not list_run_ids(results):
        return describe_power(planned, loaded.name, ())
    # it loads DuckDB and pandas, which takes most of a second
    from dlperf_slurm.results.history.catalogue import read_catalogue

    return describe_power(planned, loaded.name, read_catalogue(results).entries)
