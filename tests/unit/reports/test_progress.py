"""What `status` says of array tasks that failed: what was tried again since, and how to."""

import io

from rich.console import Console

from dlperf_slurm.jobs.run_directory import RunTask
from dlperf_slurm.reports.progress import print_states
from dlperf_slurm.scheduler.state import TaskState


def make_state(attempt: int, state: str, detail: str = "") -> TaskState:
    return TaskState(RunTask("1n1g", attempt, f"cases/case/r1/a{attempt}"), "7", state, detail)


def print_text(run, *states: TaskState) -> str:
    text = io.StringIO()
    print_states(run, states, Console(file=text, width=500))
    return text.getvalue()


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
