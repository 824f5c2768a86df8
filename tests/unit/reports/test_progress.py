"""What `status` says of array tasks that failed: what was tried again since, and how to."""

import io

from dlperf_slurm.jobs.run_directory import RunTask
from dlperf_slurm.reports.plain_console import PlainConsole
from dlperf_slurm.reports.progress import print_states
from dlperf_slurm.scheduler.state import TaskState


def make_state(attempt: int, state: str, detail: str = "") -> TaskState:
    return TaskState(RunTask("1n1g", attempt, f"cases/case/r1/a{attempt}"), "7", state, detail)


def print_text(run, *states: TaskState) -> str:
    text = io.StringIO()
    print_states(run, states, PlainConsole(text, width=500))
    return text.getvalue()


def test_equal_failures_are_one_line(staged_run):
    tasks = [RunTask("1n1g", n, f"cases/case/r{n}/a1") for n in range(1, 6)]
    states = [TaskState(task, "7", "FAILED", "exit code 1") for task in tasks[:4]]
    text = print_text(staged_run, *states, TaskState(tasks[4], "7", "TIMEOUT", ""))
    lines = [line for line in text.splitlines() if line.startswith("case repeat ")]
    assert lines == [
        "case repeat 1, case repeat 2, case repeat 3 and 1 more: FAILED (exit code 1)",
        "case repeat 5: TIMEOUT",
    ]


def test_array_jobs_of_equal_states_are_one_row(staged_run):
    tasks = [RunTask(f"1n{n}g", 1, f"cases/case{n}/r1/a1") for n in (1, 2, 3, 4)]
    text = print_text(staged_run, *(TaskState(task, "7", "COMPLETED", "") for task in tasks))
    (row,) = [line for line in text.splitlines() if "1 COMPLETED" in line]
    assert row.split()[0] == "1n1g,"


def test_failure_that_was_tried_again_says_what_became_of_it(staged_run):
    text = print_text(staged_run, make_state(1, "LOST", "no trace"), make_state(2, "COMPLETED"))
    assert "case repeat 1: LOST (no trace); retried, now COMPLETED" in text
    assert "retry" not in text


def test_run_that_has_ended_with_a_failure_says_how_to_try_it_again(staged_run):
    text = print_text(staged_run, make_state(1, "TIMEOUT"))
    assert f": dlperf-slurm retry {staged_run.path}\n" in text
    assert "retried" not in text


def test_run_that_has_not_ended_is_not_to_be_tried_again_yet(staged_run):
    text = print_text(staged_run, make_state(1, "TIMEOUT"), make_state(2, "RUNNING"))
    assert "To retry" not in text
    assert "TIMEOUT; retried, now RUNNING" in text
