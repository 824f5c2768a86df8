"""The command archive: pack a run that has ended into one file."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.cli.options import RUN_HELP, add_command, add_results_option
from dlperf_slurm.cli.output import say
from dlperf_slurm.errors import InputError, SchedulerError
from dlperf_slurm.program import COMMAND

if TYPE_CHECKING:
    from dlperf_slurm.cli.options import Commands
    from dlperf_slurm.jobs.run_directory import Run

MIB = 2**20


def add_commands(commands: "Commands") -> None:
    """Add the command `archive` to the parser."""
    parser = add_command(commands, "archive", run_archive)
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="path of the archive (default: RUN_ID.zip beside the run directory)",
    )
    parser.add_argument(
        "--remove", action="store_true", help="delete the run directory after verifying the archive"
    )
    add_results_option(parser)


def run_archive(options: argparse.Namespace) -> None:
    """Pack a run directory into a zip file; with --remove, delete the run directory afterwards."""
    from dlperf_slurm.files.archive_lookup import ARCHIVE_SUFFIX
    from dlperf_slurm.jobs.archives import write_archive
    from dlperf_slurm.jobs.run_directory import find_run

    run = find_run(options.run, options.results)
    refuse_unfinished(run)
    output = options.output or run.path.with_name(f"{run.run_id}{ARCHIVE_SUFFIX}")
    done = write_archive(run, output, options.remove)
    before, after = (size / MIB for size in (done.content_bytes, done.size_bytes))
    say(
        f"Packed {done.files} files ({before:.1f} MiB) into {after:.1f} MiB, and verified each file"
    )
    say(f"{run.path}: {'deleted' if options.remove else 'is kept; to delete it: --remove'}")
    print(f"Archive: {done.path}")
    print(f"Report: {COMMAND} report {done.path}", flush=True)


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
