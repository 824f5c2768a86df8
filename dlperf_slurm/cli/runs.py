"""Commands of a run, in the order of the pipeline: plan, render, submit, status, ..., cancel."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.cli.output import PROGRAM, make_console, say
from dlperf_slurm.errors import (
    EnvironmentMissingError,
    InputError,
    SchedulerError,
)

if TYPE_CHECKING:
    from dlperf_slurm.config.site import LoadedSite
    from dlperf_slurm.jobs.plan import Plan
    from dlperf_slurm.jobs.run_directory import Run
    from dlperf_slurm.matrix.file import MatrixFile


def run_plan(options: argparse.Namespace) -> None:
    from rich.text import Text

    from dlperf_slurm.reports.terminal import print_plan

    _, loaded, plan = _load_plan(options, must_reach_cluster=False)
    console = make_console()
    print_plan(plan, console)
    for line in _list_missing_environments(loaded, plan):
        console.print(Text(f"note: {line}", style="yellow"))


def run_render(options: argparse.Namespace) -> None:
    run = _stage(options, must_reach_cluster=False)
    for group_id in run.list_group_ids():
        print(run.find_script(group_id))
    print(f"Submit it: {PROGRAM} submit --resume {run.path}")


def run_submit(options: argparse.Namespace) -> None:
    from dlperf_slurm.jobs.run_directory import find_run
    from dlperf_slurm.scheduler.retry import stage_retry
    from dlperf_slurm.scheduler.submit import submit_run

    if (options.matrix is None) == (options.resume is None):
        raise InputError("submit: name either a MATRIX or --resume RUN")
    if options.retry and options.resume is None:
        raise InputError("submit: --retry goes with --resume RUN")
    if options.resume is not None:
        if options.site or options.set:
            raise InputError("submit: a run keeps its site; --site and --set go with a MATRIX")
        run = find_run(options.resume, options.results)
        if options.retry:
            say(f"{stage_retry(run)} array tasks to try again")
    else:
        run = _stage(options, must_reach_cluster=True)
    say(f"Run directory: {run.path}")
    submit_run(run, say)
    if options.wait:
        _follow(run)
        return
    print(f"Follow it:  {PROGRAM} status {run.path}")
    print(f"Or wait:    {PROGRAM} wait {run.path}")
    print(f"At the end: {PROGRAM} report {run.path}")


def run_status(options: argparse.Namespace) -> None:
    from dlperf_slurm.jobs.run_directory import find_run
    from dlperf_slurm.reports.progress import print_states
    from dlperf_slurm.scheduler.track import Tracker

    run = find_run(options.run, options.results)
    tracker = Tracker(run)
    print_states(run, tracker.refresh(ask_scheduler=True), make_console())
    if tracker.scheduler_error:
        raise SchedulerError(f"{tracker.scheduler_error}\nWhat is shown comes from files alone.")


def run_wait(options: argparse.Namespace) -> None:
    from dlperf_slurm.jobs.run_directory import find_run

    _follow(find_run(options.run, options.results))


def run_cancel(options: argparse.Namespace) -> None:
    from dlperf_slurm.jobs.run_directory import find_run
    from dlperf_slurm.scheduler.cancel import cancel_run

    run = find_run(options.run, options.results)
    print(f"{cancel_run(run)} array tasks of {run.run_id} cancelled")


def _load_plan(
    options: argparse.Namespace, must_reach_cluster: bool
) -> "tuple[MatrixFile, LoadedSite, Plan]":
    from dlperf_slurm.config.site import load_site
    from dlperf_slurm.jobs.plan import make_plan
    from dlperf_slurm.matrix.expand import expand_matrix
    from dlperf_slurm.matrix.file import read_matrix

    if not options.matrix.exists():
        raise InputError(
            f"{options.matrix}: there is no such file; `{PROGRAM} init` copies examples to here"
        )
    file = read_matrix(options.matrix)
    expansion = expand_matrix(file)
    loaded = load_site(options.site, file.toml, options.set)
    max_array_size = _find_max_array_size(loaded, must_reach_cluster)
    return file, loaded, make_plan(expansion, loaded.site, max_array_size)


def _find_max_array_size(loaded: "LoadedSite", must_reach_cluster: bool) -> int:
    from dlperf_slurm import slurm_client
    from dlperf_slurm.jobs.plan import DEFAULT_MAX_ARRAY_SIZE

    if loaded.site.max_array_size is not None:
        return loaded.site.max_array_size
    if loaded.site.scheduler == "local":
        return DEFAULT_MAX_ARRAY_SIZE
    try:
        text = slurm_client.read_cluster_config().get("MaxArraySize", "not shown")
    except SchedulerError as error:
        if must_reach_cluster:
            raise SchedulerError(
                f"{error}\nTo run on this machine, without a scheduler: --site local"
            ) from error
        return DEFAULT_MAX_ARRAY_SIZE
    if not text.isdigit() or int(text) == 0:
        raise SchedulerError(f"this cluster takes no array jobs: its MaxArraySize is {text}")
    return int(text)


def _stage(options: argparse.Namespace, must_reach_cluster: bool) -> "Run":
    from dlperf_slurm.jobs.stage import stage_run

    file, loaded, plan = _load_plan(options, must_reach_cluster)
    if not plan.groups:
        reasons = dict.fromkeys(left_out.reason for left_out in plan.left_out)
        raise InputError(
            f"{options.matrix}: site {loaded.name} can run none of its cases:\n  "
            + "\n  ".join(reasons)
        )
    missing = _list_missing_environments(loaded, plan)
    if missing:
        raise EnvironmentMissingError("\n".join(missing))
    return stage_run(options.results, file, loaded, plan, sys.argv)


def _list_missing_environments(loaded: "LoadedSite", plan: "Plan") -> list[str]:
    frameworks = {framework for group in plan.groups for framework in group.frameworks}
    lines = []
    for framework in sorted(frameworks):
        venv = loaded.site.find_environment(framework).venv
        if venv is not None and not (Path(venv) / "bin" / "python").exists():
            lines.append(
                f"{framework}: no environment at {venv}; create it with `{PROGRAM} env create "
                f"{framework}`, or name your own under [environments.{framework}] of the site file"
            )
    return lines


def _follow(run: "Run") -> None:
    from dlperf_slurm.cli.report import report_run
    from dlperf_slurm.reports.progress import show_progress
    from dlperf_slurm.scheduler.track import Tracker

    tracker = Tracker(run)
    show_progress(tracker, make_console())
    calls = ", ".join(f"{count} {name}" for name, count in tracker.watcher.calls.items())
    if calls:
        print(f"{len(tracker.array_job_ids)} sbatch; while waiting: {calls}")
    report_run(run)
