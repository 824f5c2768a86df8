"""The commands of a folder of runs: list, log, archive and publish."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.cli.options import (
    RUN_HELP,
    add_command,
    add_json_option,
    add_results_option,
)
from dlperf_slurm.cli.output import make_console, print_json, say, warn
from dlperf_slurm.errors import InputError, SchedulerError
from dlperf_slurm.plain_text import count_things, matches_pattern
from dlperf_slurm.program import COMMAND, LATEST

if TYPE_CHECKING:
    from dlperf_slurm.cli.options import Commands
    from dlperf_slurm.jobs.run_directory import Run, RunTask

SHOWN_RUNS = 20
SHOWN_LINES = 40
# of an array task's output; a longer one is cut at its beginning
LOG_LIMIT_BYTES = 2**24
DEFAULT_TITLE = "Deep-learning benchmarks"
MIB = 2**20


def add_commands(commands: "Commands") -> None:
    """Add the commands `list`, `log`, `archive` and `publish` to the parser."""
    command = add_command(commands, "list", run_list)
    add_json_option(command)
    command.add_argument(
        "--all", action="store_true", help=f"list all runs, not only the latest {SHOWN_RUNS}"
    )
    add_results_option(command)

    command = add_command(commands, "log", run_log)
    command.add_argument("run", metavar="RUN", nargs="?", default=LATEST, help=RUN_HELP)
    text = (
        "part of a case id, or a pattern with * and ?; default: all failed cases, or the last case "
        "if none failed"
    )
    command.add_argument("case", metavar="CASE", nargs="?", help=text)
    text = f"number of last lines of each file to print (default: {SHOWN_LINES}; 0: all lines)"
    command.add_argument("-n", "--lines", type=int, default=SHOWN_LINES, metavar="N", help=text)
    add_results_option(command)

    command = add_command(commands, "archive", run_archive)
    command.add_argument("run", metavar="RUN", help=RUN_HELP)
    command.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="path of the archive (default: RUN_ID.zip beside the run directory)",
    )
    command.add_argument(
        "--remove", action="store_true", help="delete the run directory after verifying the archive"
    )
    add_results_option(command)

    command = add_command(commands, "publish", run_publish)
    text = "folder of the site; an existing site is updated"
    command.add_argument("directory", type=Path, metavar="DIR", help=text)
    command.add_argument(
        "--title", default=DEFAULT_TITLE, help=f"title of the site (default: {DEFAULT_TITLE})"
    )
    command.add_argument(
        "--names",
        action="store_true",
        help="show the real names of hosts and users (default: host-1, host-2, ... and user)",
    )
    add_results_option(command)


def run_list(options: argparse.Namespace) -> None:
    """Print runs with title, site, state, age and best throughput, without asking the scheduler."""
    from dlperf_slurm.jobs.archives import list_readable_runs
    from dlperf_slurm.jobs.run_directory import describe_no_runs, list_denied
    from dlperf_slurm.reports.run_list import COLUMNS, OMIT_FIRST, list_rows
    from dlperf_slurm.reports.terminal import print_table

    runs = [*reversed(list_readable_runs(options.results).items())]
    rows, problems = list_rows(options.results, runs if options.all else runs[:SHOWN_RUNS])
    for problem in [*problems, *list_denied(options.results)]:
        warn(f"warning: {problem}")
    if options.json:
        print_json(rows)
        return
    if not rows:
        say(describe_no_runs(options.results))
        return
    cells = [[row[key] for key in COLUMNS.values()] for row in rows]
    console = make_console()
    print_table([*COLUMNS], cells, console, text_columns=None, omit_first=OMIT_FIRST)
    if len(runs) > len(rows):
        say(f"{len(runs) - len(rows)} older runs are not shown; to list them: --all")


def run_log(options: argparse.Namespace) -> None:
    """Print the end of stdout and stderr of array tasks; raise InputError if no case matches."""
    from dlperf_slurm.contract.step_archive import STREAM_FILES
    from dlperf_slurm.files.reading import read_bytes
    from dlperf_slurm.jobs.attempts import list_starts
    from dlperf_slurm.jobs.run_directory import find_run

    if options.lines < 0:
        raise InputError(f"--lines: {options.lines} is not allowed; allowed: at least 0")
    run = find_run(options.run, options.results)
    silent: dict[str, list[str]] = {}
    for task in _choose_tasks(run, options.case):
        attempt_dir = run.path / task.attempt_dir
        starts = list_starts(attempt_dir, run.path)
        folder = starts[0].path if starts else attempt_dir
        texts = {}
        for name in STREAM_FILES:
            try:
                texts[name] = read_bytes(folder / name, LOG_LIMIT_BYTES, run.path).decode(
                    "utf-8", "replace"
                )
            except FileNotFoundError:
                continue
        if not texts:
            silent.setdefault(task.case_id, []).append(str(task.repeat))
        for name, text in texts.items():
            lines = text.splitlines()
            say(f"==> {folder / name} <==")
            for line in lines[-options.lines :]:
                say(line)
    for case_id, repeats in silent.items():
        say(f"==> {case_id} repeat {', '.join(repeats)}: no output <==")


def _choose_tasks(run: "Run", pattern: Optional[str]) -> "list[RunTask]":
    """Return the array tasks to show: latest attempts of matching cases, or failed ones.

    Without a pattern and a failure, the last array task.
    """
    from dlperf_slurm.jobs.attempts import validate_attempt
    from dlperf_slurm.jobs.run_directory import list_latest_attempts

    latest = list_latest_attempts(run.read_all_tasks())
    tasks = sorted(latest, key=lambda task: (task.case_id, task.repeat))
    if pattern is not None:
        chosen = [task for task in tasks if matches_pattern(task.case_id, [pattern])]
        if not chosen:
            known = ", ".join(dict.fromkeys(task.case_id for task in tasks))
            raise InputError(f"{pattern}: no case of {run.run_id} matches; its cases: {known}")
        return chosen
    planned = {case.case_id: case for case in run.manifest.cases}
    found = [
        (task, validate_attempt(run, planned[task.case_id], task))
        for task in tasks
        if task.case_id in planned
    ]
    failed = [task for task, attempt in found if attempt.start and not attempt.is_valid]
    return failed or [task for task, attempt in found if attempt.start][-1:]


def run_archive(options: argparse.Namespace) -> None:
    """Pack a run directory into a zip file; with --remove, delete the run directory afterwards."""
    from dlperf_slurm.files.archive_lookup import ARCHIVE_SUFFIX
    from dlperf_slurm.jobs.archives import write_archive
    from dlperf_slurm.jobs.run_directory import find_run

    run = find_run(options.run, options.results)
    refuse_unfinished(run)
    output = options.output or run.path.with_name(f"{run.run_id}{ARCHIVE_SUFFIX}")
    files, size_bytes = write_archive(run, output, options.remove)
    before, after = size_bytes / MIB, output.stat().st_size / MIB
    say(f"Packed {files} files ({before:.1f} MiB) into {after:.1f} MiB, and verified each file")
    say(f"{run.path}: {'deleted' if options.remove else 'is kept; to delete it: --remove'}")
    print(f"Archive: {output}")
    print(f"Report: {COMMAND} report {output}", flush=True)


def refuse_unfinished(run: "Run") -> None:
    """Raise InputError if array tasks have not ended, SchedulerError if Slurm does not answer."""
    from dlperf_slurm.scheduler.state import count_states
    from dlperf_slurm.scheduler.track import Tracker

    if run.manifest.is_import:
        return
    tracker = Tracker(run)
    left = [state for state in tracker.refresh(ask_scheduler=True) if not state.is_final]
    if tracker.scheduler_error:
        raise SchedulerError(
            f"{tracker.scheduler_error}\nNothing was archived; try again when Slurm responds."
        )
    if left:
        words = ", ".join(f"{count} {state}" for state, count in count_states(left).items())
        raise InputError(
            f"{run.path}: {len(left)} array tasks have not ended: {words}\n"
            f"Finish the run: {COMMAND} resume {run.path} --wait\n"
            f"Or cancel it:   {COMMAND} cancel {run.path}"
        )


def run_publish(options: argparse.Namespace) -> None:
    """Write a static website of all runs; runs that cannot be read are warnings, also on a page."""
    from dlperf_slurm.reports.publish import INDEX, publish_site

    done = publish_site(options.results, options.directory, options.title, options.names)
    for problem in done.problems:
        warn(f"warning: {problem}")
    counts = f"{count_things(len(done.written), 'file')} written, {done.kept} unchanged"
    say(f"{counts}, {len(done.removed)} removed")
    say(f"Site: {options.directory / INDEX}")
