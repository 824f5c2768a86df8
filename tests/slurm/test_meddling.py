"""Interference of administrators, users and Slurm's clients with a run that `wait` follows."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from support.slurm_runs import (
    CHECKOUT,
    ask,
    assert_array_tasks_in_accounting,
    count_array_tasks_in_accounting,
    count_starts_of_rank_0,
    find_array_job,
    list_queue,
    stage_spin,
    start_spin,
    submit,
    wait,
    write_wrapper,
)
from support.small_disk import bind_read_only
from support.stranger import find_processes
from support.tool import (
    DEADLINE_SECONDS,
    await_line,
    await_that,
    find_details,
    find_states,
    run_tool,
    start_tool,
)

from dlperf_slurm.jobs.run_directory import SITE_FILE, open_run
from dlperf_slurm.worker.progress import LONGEST_LOOK_SECONDS

pytestmark = pytest.mark.usefixtures("empty_queue")

CASES_FAILED = 5
MEASURED = {"1n1g.0": "COMPLETED"}
# a missing task is LOST after a second
IMPATIENT = "tracking.lost_after_seconds=1"


@pytest.fixture
def run(cluster, tmp_path, gate):
    """Start a run of one array task, whose rank waits at the gate."""
    run = start_spin(gate, tmp_path / "results", settings=[IMPATIENT, "directives=[]"])
    return run


def start_wait(run, **env):
    return start_tool(["wait", str(run.path)], CHECKOUT, env)


def finish(follower):
    """Return what `wait` printed, after asserting that it succeeded."""
    output, errors = follower.communicate(timeout=DEADLINE_SECONDS)
    assert follower.returncode == 0, output + errors
    return output


def await_state(run, *states):
    job = f"{find_array_job(run)}_0"
    await_that(lambda: list_queue(run).get(job) in states, f"it is {states}")
    return job


def test_task_that_is_suspended_for_a_while_is_measured(run, gate):
    follower = start_wait(run)
    job = f"{find_array_job(run)}_0"
    ask("scontrol", "suspend", job)
    await_state(run, "SUSPENDED")
    assert find_states(run) == {"1n1g.0": "SUSPENDED"}
    # long enough for the watchdog of each rank to check for the time limit warning
    time.sleep(LONGEST_LOOK_SECONDS + 1)
    gate.touch()
    ask("scontrol", "resume", job)
    finish(follower)
    assert (find_states(run), count_starts_of_rank_0(run)) == (MEASURED, [1])


def test_node_that_is_drained_ends_what_it_runs(cluster, run, gate):
    node = ask("squeue", "-h", "-o%N", f"-j{find_array_job(run)}").strip()
    ask("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    try:
        gate.touch()
        assert wait(run).returncode == 0
    finally:
        ask("scontrol", "update", f"nodename={node}", "state=resume")
    assert (find_states(run), count_starts_of_rank_0(run)) == (MEASURED, [1])


def test_task_that_is_requeued_and_held_waits_for_its_release(run, gate):
    job = f"{find_array_job(run)}_0"
    ask("scontrol", "requeuehold", job)
    await_state(run, "PENDING", "REQUEUE_HOLD")
    await_that(lambda: find_states(run) == {"1n1g.0": "PENDING"}, "that is what is said")
    assert "`scontrol release" in run_tool(["status", str(run.path)], CHECKOUT).stdout
    gate.touch()
    follower = start_wait(run)
    ask("scontrol", "release", job)
    ask("scontrol", "update", f"jobid={job}", "starttime=now+3")
    finish(follower)
    assert (find_states(run), count_starts_of_rank_0(run)) == (MEASURED, [2])


def test_task_whose_job_is_renamed_is_neither_lost_nor_spared_by_cancel(run):
    job = find_array_job(run)
    ask("scontrol", "update", f"jobid={job}", "jobname=renamed")
    follower = start_wait(run)
    with pytest.raises(subprocess.TimeoutExpired):
        follower.wait(timeout=6)
    assert find_states(run) == {"1n1g.0": "RUNNING"}
    done = run_tool(["cancel", str(run.path)], CHECKOUT)
    assert (done.returncode, "1 array task" in done.stdout) == (0, True), done.stdout
    await_that(lambda: not ask("squeue", "-h", "-tR,PD", f"-j{job}").strip(), "it has ended")
    output, _ = follower.communicate(timeout=DEADLINE_SECONDS)
    assert "LOST" not in output


def test_garbage_instead_of_the_queue_is_not_believed(run, tmp_path, gate):
    broken = tmp_path / "broken"
    broken.touch()
    garbage = f'if [ -e {broken} ]; then echo "<html>busy</html>"; else exec "$real" "$@"; fi'
    follower = start_wait(run, PATH=write_wrapper(tmp_path / "bin", "squeue", garbage))
    await_line(follower, "printed no table")
    broken.unlink()
    gate.touch()
    assert "LOST" not in finish(follower)


@pytest.mark.faults
def test_queue_that_hangs_for_more_than_a_minute_is_asked_again(run, tmp_path, gate):
    hung = tmp_path / "hung"
    hang = f'if [ ! -e {hung} ]; then touch {hung}; sleep 70; fi; exec "$real" "$@"'
    follower = start_wait(run, PATH=write_wrapper(tmp_path / "bin", "squeue", hang))
    await_line(follower, "did not respond within 60 s")
    gate.touch()
    finish(follower)


def test_run_directory_that_is_read_only_for_a_while_is_followed(run, gate):
    with bind_read_only(run.path):
        follower = start_wait(run)
        assert "1 RUNNING" in follower.stdout.readline()
    gate.touch()
    finish(follower)
    assert find_states(run) == MEASURED


def test_launcher_that_is_killed_fails_its_task_and_is_named(run):
    found = find_processes(str(run.path), "srun")
    assert found, "it is not there"
    for pid in found:
        # srun has two processes, which end together
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert wait(run).returncode == CASES_FAILED
    assert find_states(run) == {"1n1g.0": "FAILED"}
    assert "SIGKILL" in find_details(run)["1n1g.0"]
    assert "retrying 1 of " in run_tool(["retry", str(run.path)], CHECKOUT).stdout


def test_two_who_wait_try_again_what_failed_once(cluster, tmp_path):
    missing = tmp_path / "environment.sh"
    settings = [f'environments.pytorch.setup=["source {missing}"]', "directives=[]"]
    run = stage_spin(tmp_path / "results", settings=settings)
    submit(run)
    await_that(lambda: find_states(run) == {"1n1g.0": "FAILED"}, "its environment is missing")
    missing.touch()
    followers = [start_wait(run) for _ in range(2)]
    for follower in followers:
        finish(follower)
    assert find_states(run) == {"1n1g.0": "FAILED", "1n1g-try2.0": "COMPLETED"}
    assert count_starts_of_rank_0(run) == [0, 1]


def test_wait_runs_nothing_of_a_run_that_somebody_sent(cluster, tmp_path):
    """Edit a copy of a failed run so that another try would run a line of its sender's."""
    settings = ['environments.pytorch.setup=["exit 127"]', "directives=[]", "retry.launch=0"]
    run = stage_spin(tmp_path / "results", settings=settings)
    assert submit(run, "--wait").returncode == CASES_FAILED
    sent = open_run(shutil.copytree(run.path, tmp_path / "sent" / run.run_id, symlinks=True))
    site = sent.path / SITE_FILE
    text = site.read_text().replace("exit 127", f"touch {tmp_path / 'was-here'}")
    site.write_text(text.replace("launch = 0", "launch = 5"))
    assert_array_tasks_in_accounting(run, 1)
    assert wait(sent).returncode == CASES_FAILED
    assert sent.list_group_ids() == ["1n1g"]
    assert count_array_tasks_in_accounting(sent) == 1
    assert not (tmp_path / "was-here").exists()
    assert run_tool(["retry", str(sent.path), "--wait"], CHECKOUT).returncode == 0
    assert (tmp_path / "was-here").exists()


@pytest.mark.faults
def test_tasks_that_cannot_start_while_the_run_directory_is_away_are_tried_again(cluster, tmp_path):
    run = stage_spin(tmp_path / "results", repeats=5)
    submit(run, SPIN_STEP_SECONDS="0.5")
    follower = start_wait(run)
    await_that(lambda: sum(count_starts_of_rank_0(run)) == 1, "one runs")
    away = run.path.with_name("away")
    run.path.rename(away)
    time.sleep(15)
    # Slurm 24.11 makes the folder of a job's output
    shutil.rmtree(run.path, ignore_errors=True)
    away.rename(run.path)
    finish(follower)
    states = Counter(find_states(run).values())
    assert (states.pop("COMPLETED"), set(states)) == (5, {"FAILED"})


@pytest.mark.faults
def test_run_ends_well_without_the_daemon_of_accounting(cluster, run, gate):
    (line,) = (Path(os.environ["SLURM_TESTBED"]) / "run" / "slurmdbd.pid").read_text().splitlines()
    os.kill(int(line.split()[0]), signal.SIGKILL)
    try:
        gate.touch()
        assert wait(run).returncode == 0
    finally:
        cluster.call("up")
    assert find_states(run) == MEASURED
