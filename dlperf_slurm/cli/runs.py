"""The commands of a run: plan, render, submit, resume, retry, status, wait and cancel."""

import argparse
import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from dlperf_slurm.cli import staging
from dlperf_slurm.cli.follow import advise, follow_run, warn_of_full_disk
from dlperf_slurm.cli.options import (
    RUN_HELP,
    add_command,
    add_json_option,
    add_repeated_option,
    add_results_option,
    add_run_options,
    add_set_option,
    add_site_options,
    find_chosen_run,
)
from dlperf_slurm.cli.output import make_console, only_result, print_json, say, warn
from dlperf_slurm.errors import (
    CasesFailedError,
    EnvironmentMissingError,
    InputError,
    SchedulerError,
)
from dlperf_slurm.program import COMMAND

if TYPE_CHECKING:
    from dlperf_slurm.cli.options import Commands
    from dlperf_slurm.jobs.plan import PlannedMatrix
    from dlperf_slurm.jobs.run_directory import Run
    from dlperf_slurm.scheduler.submitter import Submitter


def add_commands(commands: "Commands") -> None:
    """Add the commands that make, follow and continue a run to the parser."""
    command = add_command(commands, "plan", run_plan)
    command.add_argument("matrix", type=Path, help="matrix file (TOML)")
    add_json_option(command)
    add_site_options(command)
    add_results_option(command)

    command = add_command(commands, "render", run_render)
    command.add_argument("matrix", type=Path, help="matrix file (TOML)")
    add_site_options(command)
    add_results_option(command)

    command = add_command(commands, "submit", run_submit)
    command.add_argument("matrix", type=Path, help="matrix file (TOML)")
    text = "second matrix, whose blocks alternate with those of the first; needs --interleave"
    command.add_argument("matrix_b", metavar="B", type=Path, nargs="?", help=text)
    add_wait_options(command)
    text = "alternate blocks of repeats of two matrices, so that drift affects both equally"
    command.set_defaults(is_interleave_first=False)
    command.add_argument(
        "--interleave",
        action=_Interleave,
        nargs="?",
        metavar="B",
        type=Path,
        const=False,
        help=text,
    )
    text = "make all checks, and show what would be submitted, but submit and write nothing"
    command.add_argument("--dry-run", action="store_true", help=text)
    command.add_argument(
        "--within",
        metavar="TIME",
        help="without Slurm: after TIME, such as 5min, start only the first repeat of each case",
    )
    command.add_argument(
        "--unchecked",
        action="store_true",
        help="submit without checking the jobs against the cluster's limits",
    )
    text = "run a few extra steps of each case under a profiler; they are not part of the results"
    command.add_argument("--profile", choices=("nsys", "torch", "rocprof"), help=text)
    text = "profile only cases whose id matches PATTERN, with * and ?; may be repeated"
    add_repeated_option(command, "--only", "PATTERN", text)
    _add_bad_nodes_option(command)
    add_site_options(command)
    add_results_option(command)

    for name, handler in (("resume", run_resume), ("retry", run_retry)):
        command = add_command(commands, name, handler)
        command.add_argument("run", metavar="RUN", help=RUN_HELP)
        add_wait_options(command)
        if handler is run_resume:
            add_set_option(
                command, "set a value of the site for array jobs that are not submitted yet"
            )
        else:
            _add_bad_nodes_option(command)
        add_results_option(command)

    for name, handler in (("status", run_status), ("wait", run_wait), ("cancel", run_cancel)):
        command = add_command(commands, name, handler)
        add_run_options(command)
        if name == "status":
            add_json_option(command)
            text = "exit with 5 if array tasks have failed and were not retried"
            command.add_argument("--exit-code", action="store_true", help=text)
        if name == "wait":
            _add_result_options(command)


def _add_bad_nodes_option(parser: argparse.ArgumentParser) -> None:
    text = "exclude nodes that were slow in earlier runs, or failed and have had no result since"
    parser.add_argument("--exclude-bad-nodes", action="store_true", help=text)


def add_wait_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wait", action="store_true", help="wait for the run to end, then report")
    _add_result_options(parser)


def _add_result_options(parser: argparse.ArgumentParser) -> None:
    add_json_option(parser, "print only the run and its Slurm job ids, as JSON")
    text = "print only the path of the run directory, and errors"
    parser.add_argument("-q", "--quiet", action="store_true", help=text)


@contextmanager
def print_result(options: argparse.Namespace) -> "Iterator[list[Run]]":
    """Yield a list for runs; at the end print their ids with --json, or their paths with --quiet.

    The caller appends the runs. With these options, other messages in the context are discarded.
    """
    runs: list[Run] = []
    try:
        # the plan of --dry-run has the checks' results, so their own output is discarded
        with only_result(options.json or options.quiet or getattr(options, "dry_run", False)):
            yield runs
    finally:
        for run in runs:
            if options.json:
                print_json(_describe_submission(run))
            elif options.quiet:
                say(str(run.path))


def _describe_submission(run: "Run") -> dict[str, object]:
    """Return run id, path, cases, and the id of each array job; None before its submission."""
    from dlperf_slurm.jobs.journal import SUBMITTED, read_journal

    events = read_journal(run.path)
    ids = {event.group_id: event.array_job_id for event in events if event.event == SUBMITTED}
    jobs = [{"group": name, "array_job": ids.get(name)} for name in run.list_group_ids()]
    planned = [case for case in run.manifest.cases if not case.reason]
    cases = [{"case_id": case.case_id, "repeats": case.repeats} for case in planned]
    return {"run_id": run.run_id, "path": str(run.path), "array_jobs": jobs, "cases": cases}


def run_plan(options: argparse.Namespace) -> None:
    """Print the jobs that a matrix would submit; writes nothing, and needs no cluster."""
    _print_plan(options, staging.load_plan(options, must_reach_cluster=False))


def _print_plan(
    options: argparse.Namespace, matrix: "PlannedMatrix", is_interleaved: bool = False
) -> None:
    """Print a plan with the site, notes on the settings, and the expected duration.

    With --json, print only the plan, as JSON. `is_interleaved`: it alternates with another run.
    """
    from dlperf_slurm.cli.estimates import describe_estimates
    from dlperf_slurm.config.site import explain_choice
    from dlperf_slurm.jobs.plan import describe_plan, list_missing_environments
    from dlperf_slurm.reports.plain_console import Text
    from dlperf_slurm.reports.terminal import print_plan

    plan, site_name = matrix.plan, matrix.loaded.name
    if options.json:
        print_json(describe_plan(plan, site_name))
        return
    console = make_console()
    console.print(Text(f"site {site_name}: {explain_choice(options.site)}"))
    console.print()
    print_plan(plan, console)
    for line in describe_estimates(matrix, options.results, is_interleaved):
        console.print(Text(line))
    for line in list_missing_environments(plan.sites):
        console.print(Text(f"note: {line}", style="yellow"))


def run_render(options: argparse.Namespace) -> None:
    """Stage a run without submitting it (needs no cluster or environments); print script paths."""
    (run,) = staging.stage_matrices(options, [staging.check_matrix(options, is_to_run=False)])
    for group_id in run.list_group_ids():
        print(run.get_script_path(group_id))
    print(f"To submit this run: {COMMAND} resume {run.path}")


def run_submit(options: argparse.Namespace) -> None:
    """Stage a run directory for each matrix, and submit the array jobs.

    --dry-run only prints the plan; --wait also follows each run to its end and reports. Raises
    InputError, EnvironmentMissingError, SchedulerError; with --wait, CasesFailedError or
    UnhealthyNodesError for repeats without a valid record.
    """
    options.matrix, second = _find_matrices(options)
    with print_result(options) as runs:
        checked = [check_submission(options)]
        if second is not None:
            of_second = argparse.Namespace(**{**vars(options), "matrix": second})
            checked.append(check_submission(of_second))
            staging.check_interleaving(*checked)
        if not options.dry_run:
            runs += staging.stage_matrices(options, checked)
            for run in runs:
                mark_own(run)
            failure = None
            try:
                submit_and_follow(runs[0], options.wait, is_new=True)
            except CasesFailedError as error:
                # the other run is followed too
                failure = error
            for run in runs[1:]:
                _go_on(run, options.wait)
            if failure is not None:
                raise failure
    if options.dry_run:
        for matrix in checked:
            _print_plan(options, matrix, second is not None)


def _find_matrices(options: argparse.Namespace) -> "tuple[Path, Optional[Path]]":
    """Return the path of the matrix, and that of the matrix to interleave with it, or None.

    They are in the order of the command line. Raises InputError for one matrix with --interleave,
    or several without.
    """
    given = [options.matrix, options.matrix_b, options.interleave]
    if options.is_interleave_first:
        given = [options.interleave, options.matrix, options.matrix_b]
    first, *others = filter(None, given)
    if len(others) != (options.interleave is not None):
        raise InputError(
            "--interleave needs two matrices, and two matrices need --interleave: "
            f"{COMMAND} submit A.toml B.toml --interleave"
        )
    return first, others[0] if others else None


class _Interleave(argparse.Action):
    """The action of the option --interleave, which may be followed by the second matrix."""

    def __call__(self, parser: object, namespace: Any, value: Any, option: object = None) -> None:
        namespace.interleave = value
        namespace.is_interleave_first = namespace.matrix is None


def start_run(options: argparse.Namespace) -> "Run":
    """Submit a matrix as `run_submit` does, but without messages, and return the run."""
    with only_result(True):
        (run,) = staging.stage_matrices(options, [check_submission(options)])
        mark_own(run)
        submit_and_follow(run, must_wait=False)
    return run


def check_submission(options: argparse.Namespace, nodes: Sequence[str] = ()) -> "PlannedMatrix":
    """Check the matrix and the site of a submission; `nodes` are those of a sweep.

    Raises SchedulerError if there is no Slurm and no site was named: on a login node, training must
    not start by default, so site `local` has to be named. Other errors are those of `check_matrix`.
    """
    from dlperf_slurm.jobs.private_values import hide_private_values
    from dlperf_slurm.slurm_client import is_slurm_here

    words = " ".join(map(shlex.quote, hide_private_values(options.words)))
    if options.site is None and not is_slurm_here():
        raise SchedulerError(
            "sbatch is not on PATH. On a login node, load Slurm's module first (module load "
            "slurm).\n"
            f"To run on this machine, without Slurm: {COMMAND} {words} --site local"
        )
    with advise(f"{COMMAND} {words}", (SchedulerError, EnvironmentMissingError)):
        return staging.check_matrix(options, is_to_run=True, nodes=nodes)


def _find_named_run(options: argparse.Namespace) -> "Run":
    """Return the run to continue; raises InputError if "latest" means a run of another user."""
    from dlperf_slurm.jobs.run_directory import is_latest
    from dlperf_slurm.jobs.run_ownership import has_own_files

    run = find_chosen_run(options)
    if is_latest(options.run) and not has_own_files(run):
        raise InputError(
            f"{run.run_id}, the latest run in {options.results}, belongs to another user; to "
            f"submit its jobs under your name, give the path of the run: {run.path}"
        )
    return run


def run_resume(options: argparse.Namespace) -> None:
    """Submit the array jobs of a run that are not submitted yet, or print that there are none.

    --set first changes site settings for them; --wait follows the run to its end and reports.
    """
    from dlperf_slurm.scheduler.amend import amend_site
    from dlperf_slurm.scheduler.submit import find_unsubmitted

    with _continue_run(options) as run:
        if options.set:
            run, changes = amend_site(run, options.set)
            for change in changes:
                say(f"changed site setting: {change}")
        if options.wait or find_unsubmitted(run):
            submit_and_follow(run, options.wait)
            return
        print(f"{run.run_id}: all array jobs are already submitted; nothing was done")
        print(f"To show the states:     {COMMAND} status {run.path}")
        print(f"To retry failed tasks:  {COMMAND} retry {run.path}")


@contextmanager
def _continue_run(options: argparse.Namespace) -> "Iterator[Run]":
    """Yield the run that a command names, marked as own; print as `print_result` at the end."""
    with print_result(options) as runs:
        runs.append(_find_named_run(options))
        mark_own(runs[0])
        yield runs[0]


def run_retry(options: argparse.Namespace) -> None:
    """Submit a further attempt of array tasks that failed; print a message if there are none.

    --exclude-bad-nodes keeps it off nodes that were slow or failed; --wait follows the run to its
    end and reports.
    """
    from dlperf_slurm.scheduler.retry import stage_retry
    from dlperf_slurm.scheduler.submit import find_unsubmitted

    with _continue_run(options) as run:
        with advise(f"{COMMAND} retry {run.path}"):
            before = {task.marker for task in run.read_all_tasks()}
            bad_nodes: list[str] = []
            if options.exclude_bad_nodes:
                manifest = run.manifest
                bad_nodes = staging.list_bad_nodes(
                    run.path.parent, manifest.site_name, manifest.clusters
                )
            count = stage_retry(run, bad_nodes, warn)
        if count or options.wait or find_unsubmitted(run):
            say(f"retrying {count} of {len(before)} array tasks")
            submit_and_follow(run, options.wait, before if count else ())
            return
        print(f"{run.run_id}: no array task needs a retry; nothing was done")
        print(f"To show the states: {COMMAND} status {run.path}")


def run_status(options: argparse.Namespace) -> None:
    """Print the states of a run's array tasks.

    Raises SchedulerError if the scheduler does not answer; with --exit-code, CasesFailedError if
    array tasks failed.
    """
    from dlperf_slurm.jobs.markers import SKIPPED
    from dlperf_slurm.jobs.run_directory import list_latest_attempts
    from dlperf_slurm.reports.progress import describe_states, print_states
    from dlperf_slurm.scheduler.state import COMPLETED
    from dlperf_slurm.scheduler.track import Tracker

    run = find_chosen_run(options)
    tracker = Tracker(run, trusts_journal=True)
    states = tracker.refresh(ask_scheduler=True)
    if options.json:
        print_json(describe_states(run, states))
    else:
        print_states(run, states, make_console())
        warn_of_full_disk(run)
    if tracker.journal_error:
        warn(tracker.journal_error)
    if tracker.scheduler_error:
        raise SchedulerError(
            f"{tracker.scheduler_error}\nThe states shown are from the files of the run alone."
        )
    if options.exit_code:
        latest = {task.marker for task in list_latest_attempts(tracker.tasks)}
        done = (COMPLETED, SKIPPED)
        failed = sum(
            state.is_final and state.state not in done and state.task.marker in latest
            for state in states
        )
        if failed:
            raise CasesFailedError(f"{failed} of {len(latest)} array tasks have failed")


def run_wait(options: argparse.Namespace) -> None:
    """Follow a submitted run to its end, then print and write its report.

    Array tasks that fail are retried only if this user started the run on this host.
    """
    from dlperf_slurm.jobs.run_ownership import is_own
    from dlperf_slurm.scheduler.submitter import Submitter

    with print_result(options) as runs:
        runs.append(find_chosen_run(options))
        submitter = Submitter(runs[0], say, staging.RETRY_SECONDS)
        follow_run(runs[0], submitter, is_own=is_own(runs[0]))


def run_cancel(options: argparse.Namespace) -> None:
    """Cancel all array tasks of a run that have not ended, and print how many.

    Raises InputError if "latest" means a run that this user did not start on this host.
    """
    from dlperf_slurm.jobs.run_directory import is_latest
    from dlperf_slurm.jobs.run_ownership import is_own
    from dlperf_slurm.scheduler.cancel import cancel_run

    run = find_chosen_run(options)
    if is_latest(options.run) and not is_own(run):
        raise InputError(
            f"{run.run_id}, the latest run in {options.results}, was not started by you on this "
            f"host; to cancel the run, give its path: {COMMAND} cancel {run.path}"
        )
    print(f"{cancel_run(run, warn)} array tasks of {run.run_id} cancelled")


def mark_own(run: "Run") -> None:
    """Mark a run as this user's own, so that `wait` may retry its failures."""
    from dlperf_slurm.jobs.run_ownership import mark_own

    if problem := mark_own(run):
        warn(f"{problem}; a later `{COMMAND} wait` will not retry failed array tasks of this run")


def submit_and_follow(
    run: "Run", must_wait: bool, before: Collection[str] = (), is_new: bool = False
) -> None:
    """Submit the array jobs of a run; with `must_wait`, follow the run to its end and report.

    `before` are the markers of tasks that ended before a retry; `is_new`: the run was just staged.
    """
    from dlperf_slurm.jobs.disk_space import TASK_BYTES, check_free
    from dlperf_slurm.scheduler.submit import find_unsubmitted
    from dlperf_slurm.worker.host_noise import describe_local_load

    say(f"Run directory: {run.path}")
    if run.manifest.scheduler == "local":
        # other load on this machine
        for line in describe_local_load():
            warn(f"{line}; the measured throughput may be too low")
    with advise(f"{COMMAND} resume {run.path}"):
        check_free(run.path, TASK_BYTES * len(run.read_all_tasks()))
        submitter = _make_submitter(run, must_wait, is_new)
        submitter.submit()
        has_array_jobs = len(find_unsubmitted(run)) < len(run.list_group_ids())
        if not must_wait or not (has_array_jobs or submitter.is_waiting):
            submitter.raise_if_unsubmitted()
    if must_wait:
        follow_run(run, submitter, before)
    else:
        _print_next_commands(run)


def _make_submitter(run: "Run", must_wait: bool, is_new: bool) -> "Submitter":
    """Make the submitter of a run, and of the interleaved run if this user started that one too.

    `is_new`: both were just staged. With `must_wait`, a scheduler that does not answer is asked
    again for RETRY_SECONDS.
    """
    from dlperf_slurm.jobs.run_ownership import is_own
    from dlperf_slurm.scheduler.submitter import Submitter

    other = run.find_interleaved()
    is_in_turns = is_new or (other is not None and is_own(other))
    return Submitter(run, say, staging.RETRY_SECONDS if must_wait else 0.0, is_in_turns)


def _go_on(run: "Run", must_wait: bool) -> None:
    """Follow an already submitted interleaved run if `must_wait`, else print the next commands."""
    say(f"Run directory: {run.path}")
    if must_wait:
        follow_run(run, _make_submitter(run, must_wait, is_new=True))
    else:
        _print_next_commands(run)


def _print_next_commands(run: "Run") -> None:
    print(f"Status: {COMMAND} status {run.path}")
    print(f"Wait:   {COMMAND} wait {run.path}")
    print(f"Report: {COMMAND} report {run.path}")
