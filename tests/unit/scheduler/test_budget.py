"""A run that may take so long: which repeats are begun, and what is said of the others."""

import functools
import json

import pytest
from support import local_runs
from support.problems import assert_problem
from support.tool import find_states, run_tool

from dlperf_slurm.jobs.run_directory import RunTask
from dlperf_slurm.scheduler.budget import TimeBudget

CASES = ("first", "second")
TASKS = [
    RunTask("1n1g", index, f"cases/{case}/r{repeat}/a1")
    for index, (case, repeat) in enumerate((case, repeat) for case in CASES for repeat in (1, 2, 3))
]


class Clock:
    """A clock that is turned by hand."""

    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


def run_within(seconds, task_seconds):
    """Return the (case, repeat) that start, if each takes `task_seconds`."""
    clock = Clock()
    budget = TimeBudget(seconds, clock)
    begun = []
    for task in budget.order(TASKS):
        if budget.has_time_for(task):
            begun.append((task.case_id, task.repeat))
            clock.seconds += task_seconds
            budget.note_end()
    return begun


EACH_ONCE = [("first", 1), ("second", 1)]


@pytest.mark.parametrize(
    ("seconds", "task_seconds", "begun"),
    [
        # without an end all, in the order of the array
        (0, 100, [(task.case_id, task.repeat) for task in TASKS]),
        # each case once, however slow it is
        (5, 10, EACH_ONCE),
        (45, 10, [*EACH_ONCE, ("first", 2), ("second", 2)]),
        # what would not end in time is left out
        (59, 10, [*EACH_ONCE, ("first", 2), ("second", 2), ("first", 3)]),
        (60, 10, [(case, repeat) for repeat in (1, 2, 3) for case in CASES]),
    ],
)
def test_repeats_are_begun_that_end_in_time(seconds, task_seconds, begun):
    assert run_within(seconds, task_seconds) == begun


@pytest.mark.parametrize("task_seconds", [(30, 10, 10), (10, 30, 10)])
def test_time_for_one_more_is_judged_by_the_longest_so_far(task_seconds):
    clock = Clock()
    budget = TimeBudget(75, clock)
    for seconds, repeat in zip(task_seconds, (1, 2, 3)):
        assert budget.has_time_for(RunTask("1n1g", repeat, f"cases/first/r{repeat}/a1"))
        clock.seconds += seconds
        budget.note_end()
    # 50 of 75 seconds are over: another of 10 would fit, and another of 30 would not
    assert not budget.has_time_for(RunTask("1n1g", 4, "cases/first/r4/a1"))


def test_what_is_tried_again_is_begun_after_the_time():
    clock = Clock()
    budget = TimeBudget(5, clock)
    assert budget.has_time_for(TASKS[0])
    clock.seconds += 10
    assert not budget.has_time_for(RunTask("1n1g", 0, "cases/first/r2/a1"))
    assert budget.has_time_for(RunTask("1n1g-try2", 0, "cases/first/r2/a2"))


@pytest.fixture
def submit_within(home, own_machine_lock):
    """Return a function that submits a run of fakes, and returns its output and exit code."""
    return functools.partial(_submit, home, local_runs.stage_local(home, repeats=3))


def _submit(home, run, seconds):
    path = run.path / "manifest.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**data, "within_seconds": seconds}), encoding="utf-8")
    return run, run_tool(["resume", str(run.path), "--wait"], home)


@pytest.mark.integration
def test_report_says_what_was_left_out_and_a_retry_measures_it(submit_within, home):
    run, done = submit_within(0.1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(find_states(run).values()) == ["COMPLETED", "SKIPPED", "SKIPPED"]
    assert_problem(done.stdout, says=("1 of 1 repeats measured", "2 not run", "--within"))
    page = (run.path / "report" / "report.html").read_text(encoding="utf-8")
    assert_problem(page, says=("2 more", "--within"))
    again = run_tool(["retry", str(run.path), "--wait"], home)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "retrying 2 of 3 array tasks" in again.stdout
    assert "2/2 done: 2 COMPLETED" in again.stdout
    assert "3 of 3 repeats measured" in again.stdout
    assert "--within" not in again.stdout


@pytest.mark.integration
def test_retry_of_a_run_without_failures_says_so_and_does_nothing(submit_within, home):
    run, _ = submit_within(0.0)
    again = run_tool(["retry", str(run.path)], home)
    assert again.returncode == 0, again.stdout + again.stderr
    assert_problem(again.stdout, says=("no array task",))
    assert len(run.read_all_tasks()) == 3
