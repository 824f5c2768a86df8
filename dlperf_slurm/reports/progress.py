"""States of array tasks -> a live display on a terminal, plain lines elsewhere."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Optional

from rich.console import Console
from rich.text import Text

from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.reports.terminal import print_table
from dlperf_slurm.scheduler.advice import describe_pending
from dlperf_slurm.scheduler.states import COMPLETED, PENDING, TaskState, count_states

if TYPE_CHECKING:
    from dlperf_slurm.scheduler.feed import Feeder
    from dlperf_slurm.scheduler.track import Tracker

# what is done about states as they are seen -> a line for each thing done
Mend = Callable[[Sequence[TaskState]], Sequence[str]]


def show_progress(
    tracker: "Tracker",
    mend: Mend,
    named: set[str],
    console: Console,
    feeder: "Optional[Feeder]" = None,
) -> None:
    """Follow a run to its end; each failure is named once, when it is seen.

    `named` has what was named already, and is added to.
    """
    if console.is_terminal:
        _show_bar(tracker, mend, named, console, feeder)
    else:
        _print_changes(tracker, mend, named, console, feeder)


def _show_bar(
    tracker: "Tracker", mend: Mend, named: set[str], console: Console, feeder: "Optional[Feeder]"
) -> None:
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
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=None)
        for states in follow_run(tracker, feeder):
            done = sum(state.is_final for state in states)
            text = describe_counts(states)
            if tracker.scheduler_error:
                text += " (scheduler does not answer)"
            progress.update(bar, total=len(states), completed=done, description=text)
            _name_failures(states, named, progress.console)
            name_reasons(tracker.run, states, named, progress.console)
            _print_lines(mend(states), progress.console)


def _print_changes(
    tracker: "Tracker", mend: Mend, named: set[str], console: Console, feeder: "Optional[Feeder]"
) -> None:
    from dlperf_slurm.scheduler.follow import follow_run

    last = ""
    for states in follow_run(tracker, feeder):
        done = sum(state.is_final for state in states)
        line = f"{done}/{len(states)} done: {describe_counts(states)}"
        if tracker.scheduler_error:
            line += f" (scheduler: {tracker.scheduler_error})"
        if line != last:
            console.print(Text(line))
            last = line
        _name_failures(states, named, console)
        name_reasons(tracker.run, states, named, console)
        _print_lines(mend(states), console)


def _print_lines(lines: Sequence[str], console: Console) -> None:
    for line in lines:
        console.print(Text(f"  {line}", style="yellow"))


def _name_failures(states: Sequence[TaskState], named: set[str], console: Console) -> None:
    for state in states:
        if state.is_final and state.state != COMPLETED and state.task.marker not in named:
            named.add(state.task.marker)
            console.print(Text(f"  {_describe(state)}", style="red"))


def name_reasons(run: Run, states: Sequence[TaskState], named: set[str], console: Console) -> None:
    """Say why array tasks are pending, each reason once."""
    reasons = {state.detail for state in states if state.state == PENDING} - {""}
    fresh = [state for state in states if state.detail in reasons - named]
    for line in describe_pending(run, fresh):
        console.print(Text(f"  pending: {line}", style="yellow"))
    named |= reasons


def _describe(state: TaskState) -> str:
    detail = f" ({state.detail})" if state.detail else ""
    return f"{state.task.case_id} repeat {state.task.repeat}: {state.state}{detail}"


def describe_counts(states: Sequence[TaskState]) -> str:
    """Such as "7 COMPLETED, 1 RUNNING, 4 PENDING"."""
    counts = count_states(states)
    order = (COMPLETED, "RUNNING", "PENDING")
    names = [name for name in order if name in counts]
    names += sorted(set(counts) - set(order))
    return ", ".join(f"{counts[name]} {name}" for name in names)


def print_states(run: Run, states: Sequence[TaskState], console: Console) -> None:
    """One row per group, then what is not going well, each with its reason."""
    console.print(Text(f"{run.run_id}: {describe_counts(states)}", style="bold"))
    rows = []
    for group_id in run.list_group_ids():
        group = [state for state in states if state.task.group_id == group_id]
        # a manifest that was cut short has groups without cases
        job_id = group[0].array_job_id if group else None
        rows.append([group_id, job_id or "-", describe_counts(group)])
    print_table(["group", "array job", "states"], rows, console, text_columns=None)
    for state in states:
        has_problem = state.is_final and state.state != COMPLETED
        if has_problem or (state.detail and state.state not in (COMPLETED, "STAGED", "PENDING")):
            console.print(Text(_describe(state), style="red" if has_problem else "yellow"))
    for line in describe_pending(run, states):
        console.print(Text(f"pending: {line}", style="yellow"))


def describe_states(run: Run, states: Sequence[TaskState]) -> dict[str, object]:
    """The run with each of its array tasks, as `status --json` prints it."""
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
