"""`submit` on the local site, killed (-9) at several moments and resumed: each task runs once."""

from collections import Counter

import pytest
from support import fake_environment, local_runs
from support.tool import await_that, find_states, run_tool, start_tool

from dlperf_slurm.jobs.journal import SUBMITTED, SUBMITTING, read_journal
from dlperf_slurm.scheduler import local

pytestmark = pytest.mark.slow

GROUPS = ("1n1g", "1n2g", "1n4g")

# Python imports this at its start, and so before the local array job's first line of code
KILL_PARENT = """\
import os, signal
arguments = open("/proc/self/cmdline").read().split("\\0")
if "dlperf_slurm.scheduler.local" in arguments:
    os.kill(os.getppid(), signal.SIGKILL)
"""
DIE_TOO = """\
    os._exit(1)
"""


@pytest.fixture
def run(home, own_machine_lock):
    return local_runs.stage_local(home, repeats=2, topologies=GROUPS)


def assert_each_task_runs_once_after_resume(run):
    done = run_tool(["resume", str(run.path), "--wait"], run.path.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(find_states(run).values()) == {"COMPLETED"}
    starts = [fake_environment.count_starts(path) for path in local_runs.list_attempt_dirs(run)]
    assert starts == [1] * 6
    events = Counter((e.event, e.group_id) for e in read_journal(run.path))
    assert [events[SUBMITTED, group_id] for group_id in GROUPS] == [1, 1, 1]


def submit_until(run, is_so):
    """Start `submit` and kill it as soon as `is_so`."""
    process = start_tool(["resume", str(run.path)], run.path.parent)
    await_that(is_so, "the moment to kill submit", poll_seconds=0.001)
    process.kill()
    process.communicate()


def has_event(run, kind):
    return any(event.event == kind for event in read_journal(run.path))


@pytest.mark.parametrize("code", [KILL_PARENT + DIE_TOO, KILL_PARENT], ids=["no job", "a job"])
def test_submit_killed_while_the_array_job_starts(run, home, code):
    (home / "sitecustomize.py").write_text(code, encoding="utf-8")
    killed = run_tool(["resume", str(run.path)], home, {"PYTHONPATH": str(home)})
    assert killed.returncode == -9
    assert not has_event(run, SUBMITTED)
    assert_each_task_runs_once_after_resume(run)


def test_submit_killed_when_it_has_said_what_it_will_do(run):
    submit_until(run, lambda: has_event(run, SUBMITTING))
    assert_each_task_runs_once_after_resume(run)


def test_submit_killed_when_the_array_job_is_there(run):
    submit_until(run, lambda: local.read_claim(run.path, "1n1g"))
    assert_each_task_runs_once_after_resume(run)


def test_submit_killed_between_two_groups(run):
    submit_until(run, lambda: has_event(run, SUBMITTED))
    assert_each_task_runs_once_after_resume(run)
