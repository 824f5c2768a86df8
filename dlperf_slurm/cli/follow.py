"""A submitted run -> its report, after its array tasks were followed to their end."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dlperf_slurm.cli.output import make_console, say, warn
from dlperf_slurm.errors import DlperfError, InputError
from dlperf_slurm.program import COMMAND

if TYPE_CHECKING:
    from dlperf_slurm.jobs.run_directory import Run
    from dlperf_slurm.reports.progress import HandlePoll
    from dlperf_slurm.scheduler.state import TaskState
    from dlperf_slurm.scheduler.submitter import Submitter


@contextmanager
def advise(
    command: str, kinds: tuple[type[Exception], ...] = (DlperfError, OSError)
) -> Iterator[None]:
    """Append "To continue:" and `command` to errors of these kinds that leave the context.

    An OSError is raised again as an InputError. A message that already ends with a command for the
    same run directory, the last word of `command`, is not changed.
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
        raise kind(f"{error}\nTo continue: {command}") from error


def follow_run(
    run: "Run", submitter: "Submitter", before: Collection[str] = (), is_own: bool = True
) -> None:
    """Follow a run to its end as `follow_to_end` does, then print and write its report.

    `before` are the tasks (`RunTask.marker`) that ended before a retry; `is_own`: this user started
    the run here. Raises SchedulerError at the end if Slurm refused array jobs.
    """
    from dlperf_slurm.cli.report import report_run
    from dlperf_slurm.cli.sweep import show_nodes
    from dlperf_slurm.jobs.disk_space import convert_disk_full_error

    follow_to_end(run, submitter, before, is_own)
    with advise(f"{COMMAND} retry {run.path}"), convert_disk_full_error(run.path):
        try:
            if run.manifest.nodes:
                show_nodes([run])
            else:
                report_run(run)
        finally:
            submitter.raise_if_unsubmitted()


def follow_to_end(
    run: "Run", submitter: "Submitter", before: Collection[str] = (), is_own: bool = True
) -> None:
    """Show a run's progress to its end, submit waiting array jobs, and retry failed array tasks.

    If this user did not start the run here (`is_own` is False), nothing is released or retried.
    Array tasks in `before` (`RunTask.marker`) that have ended are not counted as progress.
    """
    from dlperf_slurm.jobs.disk_space import convert_disk_full_error
    from dlperf_slurm.reports.progress import show_progress
    from dlperf_slurm.scheduler.hold_release import Releaser
    from dlperf_slurm.scheduler.retry import read_retry_limits, stage_retry_by_cause
    from dlperf_slurm.scheduler.submit import has_unsubmitted_retry
    from dlperf_slurm.scheduler.track import Tracker

    # `wait` submits nothing
    words = "resume --wait" if submitter.is_waiting else "wait"
    with advise(f"{COMMAND} {words} {run.path}"), convert_disk_full_error(run.path):
        release: HandlePoll = _release_nothing
        if is_own:
            release = Releaser(run, read_retry_limits(run).launch).release
        else:
            say(
                f"{run.run_id}: you did not start this run on this host, so its held jobs are not "
                "released and failed array tasks are not retried. To retry array tasks: "
                f"{COMMAND} retry {run.path}"
            )
        named: set[str] = set()
        while True:
            task_count = len(run.read_all_tasks())
            tracker = Tracker(run)
            show_progress(tracker, release, named, make_console(), submitter, before)
            if not is_own:
                break
            stage_retry_by_cause(run, say)
            # another `wait` may have staged attempts, submitted them since they were followed as
            # STAGED, or not submitted them yet
            if (
                len(run.read_all_tasks()) == task_count
                and not has_unsubmitted_retry(run, submitter.refused)
                and not tracker.read_submissions()
            ):
                break
            submitter.submit()
        if tracker.journal_error:
            warn(tracker.journal_error)
        warn_of_full_disk(run)
        calls = ", ".join(f"{count} {name}" for name, count in tracker.watcher.calls.items())
        if calls:
            count = len(tracker.array_job_ids)
            print(f"Calls of Slurm commands: {count} sbatch, and while waiting {calls}")


def _release_nothing(states: "Sequence[TaskState]", poll: int) -> list[str]:
    return []


def warn_of_full_disk(run: "Run") -> None:
    """Warn if the disk of a run is full, because its array tasks cannot print that themselves."""
    from dlperf_slurm.jobs.disk_space import describe_full_disk

    if full := describe_full_disk(run.path):
        say(f"{full}: array tasks cannot write files. Free space, then: {COMMAND} retry {run.path}")
