"""A run that was submitted -> its report, after its array tasks were followed to their end."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dlperf_slurm.cli.output import make_console, say, warn
from dlperf_slurm.errors import DlperfError, InputError
from dlperf_slurm.program import COMMAND

if TYPE_CHECKING:
    from dlperf_slurm.jobs.run_directory import Run
    from dlperf_slurm.scheduler.feed import Feeder


@contextmanager
def advise(
    command: str, kinds: tuple[type[Exception], ...] = (DlperfError, OSError)
) -> Iterator[None]:
    """End the message of an error of these kinds with the command that goes on.

    One that ends with a command for the same subject, the last word of `command`, stays as it is.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except kinds as error:
        subject = command.rpartition(" ")[2]
        if re.search(
            rf"{re.escape(COMMAND)} \w+ {re.escape(subject)}", str(error).rpartition("\n")[2]
        ):
            raise
        kind = type(error) if isinstance(error, DlperfError) else InputError
        raise kind(f"{error}\nTo go on: {command}") from error


def follow_run(run: "Run", feeder: "Feeder", before: Collection[str] = ()) -> None:
    """Follow a run to its end, with what the feeder has waiting, and report.

    Of the array tasks in `before`, those that have ended are not counted. Raises SchedulerError at
    the end for what was refused.
    """
    from dlperf_slurm.cli.report import report_run
    from dlperf_slurm.jobs.room import name_full_disk
    from dlperf_slurm.reports.progress import show_progress
    from dlperf_slurm.scheduler.release import Releaser
    from dlperf_slurm.scheduler.retry import read_retry_limits, stage_retry_by_cause
    from dlperf_slurm.scheduler.track import Tracker

    # `wait` submits nothing
    words = "resume --wait" if feeder.waiting else "wait"
    with advise(f"{COMMAND} {words} {run.path}"), name_full_disk(run.path):
        releaser = Releaser(run, read_retry_limits(run).launch)
        named: set[str] = set()
        while True:
            task_count = len(run.read_all_tasks())
            tracker = Tracker(run)
            show_progress(tracker, releaser.release, named, make_console(), feeder, before)
            stage_retry_by_cause(run, say)
            # another `wait` may have staged them
            if len(run.read_all_tasks()) == task_count:
                break
            feeder.submit()
        if tracker.journal_error:
            warn(tracker.journal_error)
        warn_of_full_disk(run)
        calls = ", ".join(f"{count} {name}" for name, count in tracker.watcher.calls.items())
        if calls:
            print(f"{len(tracker.array_job_ids)} sbatch; while waiting: {calls}")
    with advise(f"{COMMAND} retry {run.path}"), name_full_disk(run.path):
        try:
            report_run(run, is_brief=True)
        finally:
            feeder.raise_for_rest()


def warn_of_full_disk(run: "Run") -> None:
    """Say so where array tasks had hardly room to say it themselves."""
    from dlperf_slurm.jobs.room import find_full_disk

    if full := find_full_disk(run.path):
        say(f"{full}: array tasks there cannot write; then: {COMMAND} retry {run.path}")
