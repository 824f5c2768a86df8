"""States of array tasks -> a progress bar on a terminal, plain lines elsewhere."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.jobs.markers import SKIPPED
from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.plain_text import list_some, make_one_line
from dlperf_slurm.program import COMMAND
from dlperf_slurm.reports.plain_console import PlainConsole, Text
from dlperf_slurm.reports.terminal import print_table
from dlperf_slurm.scheduler.pending_hints import describe_pending
from dlperf_slurm.scheduler.state import COMPLETED, PENDING, TaskState, count_states

if TYPE_CHECKING:
    from dlperf_slurm.scheduler.submitter import Submitter
    from dlperf_slurm.scheduler.track import Tracker

# (states of a poll, number of polls so far) -> a line per action taken, such as a released job
HandlePoll = Callable[[Sequence[TaskState], int], Sequence[str]]


class ProgressCounts:
    """The counts of ended array tasks and the time left, for the progress display.

    `before` has the markers ("GROUP_ID.ARRAY_TASK_ID") of array tasks from before a retry: those
    that ended earlier are not counted, so that progress is that of the retried tasks.
    """

    def __init__(self, tracker: "Tracker", before: Collection[str]) -> None:
        from dlperf_slurm.reports.live_throughput import LiveThroughput
        from dlperf_slurm.reports.time_left import TimeLeft

        self._tracker = tracker
        self._before = before
        self._left_out: Optional[set[str]] = None
        self._time_left = TimeLeft(tracker.run.manifest)
        self._rate_so_far = LiveThroughput(tracker.run)
        self.done = self.total = 0
        self.rate = ""

    def describe(self, states: Sequence[TaskState]) -> str:
        """Return text such as "2 COMPLETED, 1 RUNNING, 5 PENDING, about 4 min left".

        Also updates `done` and `total` (tasks), and `rate`, the last measured throughput as text.
        """
        if self._left_out is None:
            ended = {state.task.marker for state in states if state.is_final}
            self._left_out = ended.intersection(self._before)
        counted = [state for state in states if state.task.marker not in self._left_out]
        self.done = sum(state.is_final for state in counted)
        self.total = len(counted)
        self.rate = self._rate_so_far.describe(counted)
        text = describe_counts(counted) + self._time_left.describe(self.done, self.total)
        error = self._tracker.scheduler_error
        return f"{text} (scheduler: {error})" if error else text


def show_progress(
    tracker: "Tracker",
    handle_poll: HandlePoll,
    named: set[str],
    console: PlainConsole,
    submitter: "Optional[Submitter]" = None,
    before: Collection[str] = (),
) -> None:
    """Follow a run until it ends; print progress, and each failure and pending reason once.

    `handle_poll` is called with the states and the number of each poll; the lines that it returns
    are printed. `named` has the markers ("GROUP_ID.ARRAY_TASK_ID") of failed tasks and the pending
    reasons that were printed earlier, and is updated. `submitter` submits groups that wait for a
    free queue slot; None if there are none. `before` has the markers of tasks that are not counted
    if they have ended already.
    """
    counter = ProgressCounts(tracker, before)
    show = _show_bar if console.is_terminal else _print_changes
    for states, shown_on in show(tracker, counter, console, submitter):
        _name_failures(states, named, shown_on)
        print_pending_reasons(tracker.run, states, named, shown_on)
        for line in handle_poll(states, tracker.poll_count):
            shown_on.print(Text(f"  {line}", style="yellow"))


def _show_bar(
    tracker: "Tracker",
    counter: ProgressCounts,
    console: PlainConsole,
    submitter: "Optional[Submitter]",
) -> Iterator[tuple[list[TaskState], PlainConsole]]:
    """Show a progress bar; yield the states of each poll, and the console to print on.

    `counter` counts the ended array tasks; `submitter` is as in `scheduler.follow.follow_run`.
    """
    import sys

    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    from dlperf_slurm.scheduler.follow import follow_run

    columns = (
        TextColumn("array tasks"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    shown_on = Console(file=console.file)
    with Progress(*columns, console=shown_on, refresh_per_second=1) as progress:
        # rich prints above the bar what is written to standard output
        above = PlainConsole(sys.stdout, console.width, is_terminal=True)
        bar = progress.add_task("", total=None)
        for states in follow_run(tracker, submitter):
            text = counter.describe(states)
            # rate first, because a narrow terminal cuts the end
            text = f"{counter.rate}; {text}" if counter.rate else text
            text = make_one_line(text)
            progress.update(bar, total=counter.total, completed=counter.done, description=text)
            yield states, above


def _print_changes(
    tracker: "Tracker",
    counter: ProgressCounts,
    console: PlainConsole,
    submitter: "Optional[Submitter]",
) -> Iterator[tuple[list[TaskState], PlainConsole]]:
    """Print the counts of array tasks when they change; yields as `_show_bar` does."""
    from dlperf_slurm.scheduler.follow import follow_run

    last = ""
    for states in follow_run(tracker, submitter):
        text = counter.describe(states)
        rate = f"; {counter.rate}" if counter.rate else ""
        line = f"{counter.done}/{counter.total} done: {text}{rate}"
        if line != last:
            console.print(Text(line))
            last = line
        yield states, console


def _name_failures(states: Sequence[TaskState], named: set[str], console: PlainConsole) -> None:
    """Print each failed array task once; `named` has the markers printed so far, and is updated."""
    for state in states:
        has_failed = state.is_final and state.state not in (COMPLETED, SKIPPED)
        if has_failed and state.task.marker not in named:
            named.add(state.task.marker)
            name = f"{state.task.case_id} repeat {state.task.repeat}"
            console.print(Text(f"  {name}: {_describe_state(state)}", style="red"))


def print_pending_reasons(
    run: Run, states: Sequence[TaskState], named: set[str], console: PlainConsole
) -> None:
    """Print each reason why tasks are pending once; `named` has those printed, and is updated."""
    reasons = {state.detail for state in states if state.state == PENDING} - {""}
    fresh = [state for state in states if state.detail in reasons - named]
    for line in describe_pending(run, fresh):
        console.print(Text(f"  pending: {line}", style="yellow"))
    named |= reasons


def _describe_state(state: TaskState) -> str:
    """Describe the state of an array task with its reason: "FAILED (exit code 1)"."""
    return f"{state.state} ({state.detail})" if state.detail else state.state


def _describe_later_attempts(states: Sequence[TaskState]) -> dict[str, str]:
    """Describe the latest attempt at each repeat that has several: "; retried, now RUNNING".

    The keys are the markers of the earlier attempts.
    """
    latest: dict[str, TaskState] = {}
    for state in states:
        known = latest.setdefault(state.task.repeat_dir, state)
        if known is not state and state.task.attempt > known.task.attempt:
            latest[state.task.repeat_dir] = state
    if len(latest) == len(states):
        return {}
    lasts = [(state, latest[state.task.repeat_dir]) for state in states]
    return {s.task.marker: f"; retried, now {last.state}" for s, last in lasts if last is not s}


def describe_counts(states: Sequence[TaskState]) -> str:
    """Format the number of array tasks in each state: "7 COMPLETED, 1 RUNNING, 4 PENDING"."""
    counts = count_states(states)
    order = (COMPLETED, "RUNNING", "PENDING")
    names = [name for name in order if name in counts]
    names += sorted(set(counts) - set(order))
    return ", ".join(f"{counts[name]} {name}" for name in names)


def print_states(run: Run, states: Sequence[TaskState], console: PlainConsole) -> None:
    """Print array jobs with their tasks' states, problems by reason, and any command to retry."""
    console.print(Text(f"{run.run_id}: {describe_counts(states)}", style="bold"))
    jobs: dict[str, list[tuple[str, str]]] = {}
    groups: dict[str, list[TaskState]] = {group_id: [] for group_id in run.list_group_ids()}
    for state in states:
        groups.setdefault(state.task.group_id, []).append(state)
    for group_id, group in groups.items():
        # a truncated manifest may have groups without cases
        job_id = group[0].array_job_id if group else None
        jobs.setdefault(describe_counts(group), []).append((group_id, job_id or "-"))
    rows = [
        [list_some(groups), list_some([*dict.fromkeys(ids)]), text + " each" * (len(groups) > 1)]
        for text, found in jobs.items()
        for groups, ids in [zip(*found)]
    ]
    print_table(["group", "array job", "states"], rows, console, text_columns=None)
    later = _describe_later_attempts(states)
    has_open_problem = False
    alike: dict[tuple[str, str], list[str]] = {}
    for state in states:
        has_problem = state.is_final and state.state not in (COMPLETED, SKIPPED)
        has_open_problem |= has_problem and state.task.marker not in later
        if has_problem or (state.detail and state.state not in (COMPLETED, "STAGED", "PENDING")):
            text = _describe_state(state) + later.get(state.task.marker, "")
            alike.setdefault((text, "red" if has_problem else "yellow"), []).append(
                f"{state.task.case_id} repeat {state.task.repeat}"
            )
    for (text, style), names in alike.items():
        console.print(Text(f"{list_some(names)}: {text}", style=style))
    if has_open_problem:
        console.print(Text(f"Output of what failed: {COMMAND} log {run.path}"))
        if all(state.is_final for state in states):
            console.print(Text(f"To retry: {COMMAND} retry {run.path}"))
    for line in describe_pending(run, states):
        console.print(Text(f"pending: {line}", style="yellow"))


def describe_states(run: Run, states: Sequence[TaskState]) -> dict[str, object]:
    """Return the JSON object of a run and its array tasks, for `status --json`."""
    return {
        "run_id": run.run_id,
        "path": str(run.path),
        "counts": dict(count_states(states)),
        "array_tasks": [
            {
                "group": state.task.group_id,
                "array_job": state.array_job_id,
                "array_task_id": state.task.array_task_id,
                "case_id": state.task.case_id,
                "repeat": state.task.repeat,
                "attempt": state.task.attempt,
                "state": state.state,
                "is_final": state.is_final,
                "detail": state.detail,
            }
            for state in states
        ],
    }
