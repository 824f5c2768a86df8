"""`submit` killed (-9) around its first sbatch and resumed: no case is lost, none runs twice."""

from collections import Counter

import pytest
from support.slurm_runs import (
    ask,
    assert_array_tasks_in_accounting,
    count_starts_of_rank_0,
    stage_spin,
    submit,
    wait,
    write_wrapper,
)
from support.tool import await_that

from dlperf_slurm.jobs.journal import SUBMITTED, SUBMITTING, read_journal

GROUPS = ("1n1g", "1n2g")
REPEATS = 2
TASKS = len(GROUPS) * REPEATS

# Scripts of a fake sbatch; its parent is `submit`. The array job is held, so that `resume` cannot
# find it by the files of a started task.
MOMENTS = {
    "before sbatch reached the controller": "kill -9 $PPID",
    "before sbatch's answer was read": '"$real" --hold "$@"; kill -9 $PPID',
    # sbatch outlives its parent, and the job is not in the queue yet when `resume` starts
    "while sbatch waits for the controller": 'kill -9 $PPID; sleep 2; exec "$real" --hold "$@"',
}


@pytest.fixture
def run(cluster, tmp_path):
    return stage_spin(tmp_path / "results", GROUPS, REPEATS, ["directives=[]"])


def submit_with(run, tmp_path, sbatch):
    return submit(run, PATH=write_wrapper(tmp_path / "bin", "sbatch", sbatch))


def count_events(run):
    return Counter((event.event, event.group_id) for event in read_journal(run.path))


def resume(run):
    """Resume the run; return False while another process, a surviving sbatch, has the lock."""
    done = submit(run)
    assert done.returncode == 0 or "another process is submitting" in done.stderr, done.stderr
    return done.returncode == 0


def release_held(run):
    names = ",".join(f"{run.run_id}.{group}" for group in GROUPS)
    held = ask("squeue", "--noheader", f"--name={names}", "--states=PENDING", "--format=%F %r")
    for line in held.splitlines():
        job_id, reason = line.split(maxsplit=1)
        if reason == "JobHeldUser":
            ask("scontrol", "release", job_id)


@pytest.mark.parametrize("moment", MOMENTS)
def test_submit_killed_and_resumed_runs_each_case_once(run, tmp_path, moment):
    killed = submit_with(run, tmp_path, MOMENTS[moment])
    assert killed.returncode == -9
    events = count_events(run)
    assert events[SUBMITTING, "1n1g"] == 1
    assert events[SUBMITTED, "1n1g"] == 0

    await_that(lambda: resume(run), "the submission is resumed")
    release_held(run)
    assert wait(run).returncode == 0
    assert count_starts_of_rank_0(run) == [1] * TASKS
    assert_array_tasks_in_accounting(run, TASKS)
    assert [count_events(run)[SUBMITTED, group] for group in GROUPS] == [1, 1]


def test_answer_that_was_lost_does_not_submit_again(run, tmp_path):
    lost = 'echo "sbatch: error: Socket timed out on send/recv operation" >&2; exit 1'
    done = submit_with(run, tmp_path, f'"$real" "$@" > /dev/null; {lost}')
    assert done.returncode == 0, done.stderr
    assert wait(run).returncode == 0
    assert_array_tasks_in_accounting(run, TASKS)
