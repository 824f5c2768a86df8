"""Nodes and the controller fail during a run; takes minutes, so only in make test-faults."""

import subprocess
import time

import pytest
from support.slurm_runs import (
    CHECKOUT,
    NOTHING_TO_RETRY,
    ask,
    await_ranks,
    count_starts_of_rank_0,
    find_array_job,
    kill_controller,
    list_queue,
    list_valid_records,
    stage_spin,
    start_spin,
    submit,
    wait,
)
from support.tool import (
    DEADLINE_SECONDS,
    await_that,
    find_details,
    find_states,
    has_marker,
    run_tool,
    start_tool,
)

from dlperf_slurm.contract.json_files import read_json
from dlperf_slurm.contract.record import Record

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("empty_queue")]

CASES_FAILED = 5


def release(job, seconds=3):
    """Start a requeued array task before its delay of two minutes is over."""
    await_that(lambda: ask("squeue", "-h", "-o%T", f"-j{job}") == "PENDING\n", "it is requeued")
    time.sleep(seconds)
    ask("scontrol", "update", f"jobid={job}", f"starttime=now+{seconds}")


def test_task_whose_second_node_dies_is_not_failed_before_it_comes_back(cluster, tmp_path, gate):
    settings = ['directives=["--nodelist=n1,n2"]']
    run = start_spin(gate, tmp_path / "results", ["2n1g"], settings=settings)
    follower = start_tool(["wait", str(run.path)], CHECKOUT)
    cluster.call("stop-slurmd", "n2")
    try:
        job = f"{find_array_job(run, '2n1g')}_0"
        await_that(lambda: list_queue(run).get(job) == "PENDING", "it is requeued")
    finally:
        cluster.call("start", "n2")
    gate.touch()
    release(job)
    output, _ = follower.communicate(timeout=DEADLINE_SECONDS)
    assert (follower.returncode, "FAILED" in output) == (0, False), output
    assert find_states(run) == {"2n1g.0": "COMPLETED"}
    assert count_starts_of_rank_0(run) == [2]
    assert NOTHING_TO_RETRY in run_tool(["retry", str(run.path)], CHECKOUT).stdout


def test_task_of_a_node_that_died_is_tried_again_without_it(cluster, tmp_path, gate):
    run = start_spin(gate, tmp_path / "results", settings=['directives=["--no-requeue"]'])
    node = ask("squeue", "-h", "-o%N", f"-j{find_array_job(run)}").strip()
    cluster.call("stop-slurmd", node)
    try:
        follower = start_tool(["wait", str(run.path)], CHECKOUT, {"SPIN_WAIT_FOR": ""})
        output, _ = follower.communicate(timeout=DEADLINE_SECONDS)
    finally:
        cluster.call("start", node)
    assert follower.returncode == 0, output
    assert f"retrying 1 array tasks, excluding {node}; the first failed: " in output
    assert find_states(run) == {"1n1g.0": "NODE_FAIL", "1n1g-try2.0": "COMPLETED"}


def test_node_that_died_is_named(cluster, tmp_path, gate):
    settings = ['directives=["--nodelist=n1,n2", "--no-requeue"]', "retry.node_fail=0"]
    run = start_spin(gate, tmp_path / "results", ["2n1g"], settings=settings)
    cluster.call("stop-slurmd", "n2")
    try:
        assert wait(run).returncode == CASES_FAILED
    finally:
        cluster.call("start", "n2")
    assert find_states(run) == {"2n1g.0": "NODE_FAIL"}
    assert "node n2" in find_details(run)["2n1g.0"]


def test_start_that_lives_on_a_lost_node_does_not_write_into_its_successor(cluster, tmp_path, gate):
    run = stage_spin(tmp_path / "results", settings=['directives=["--exclude=n1,n4"]'])
    submit(run, SPIN_WAIT_FOR=str(gate), SPIN_STEP_SECONDS="0.5")
    await_ranks(run, 1)
    job = f"{find_array_job(run)}_0"
    node = ask("squeue", "-h", "-o%N", f"-j{job}").strip()
    cluster.call("stop-slurmd", node)
    try:
        release(job)
        await_ranks(run, 2)
        # both starts continue at the same time
        gate.touch()
        assert wait(run).returncode == 0
    finally:
        cluster.call("start", node)
    assert find_states(run) == {"1n1g.0": "COMPLETED"}
    (record,) = run.path.glob("cases/*/r1/a1/s1/record.json")
    assert [rank.host for rank in read_json(record, Record).ranks] != [node]


@pytest.mark.parametrize("moment", ["while it runs", "as it ends"])
def test_controller_that_dies_loses_no_record(cluster, tmp_path, gate, moment):
    run = start_spin(
        gate, tmp_path / "results", repeats=2, settings=["tracking.lost_after_seconds=5"]
    )
    follower = start_tool(["wait", str(run.path)], CHECKOUT)
    kill_controller(run)
    if moment == "as it ends":
        gate.touch()
        await_that(
            lambda: has_marker(run, "1n1g.0", "ended") or has_marker(run, "1n1g.1", "ended"),
            "it ends without a controller",
        )
        # until slurmd stops reporting the end to the controller
        time.sleep(20)
    cluster.call("up")
    gate.touch()
    sent: set[str] = set()
    await_that(lambda: follower.poll() is not None or send_off(run, sent), "it ends", 240, 1.0)
    output, _ = follower.communicate()
    assert follower.returncode == 0, output
    assert set(find_states(run).values()) == {"COMPLETED"}
    sound = list_valid_records(run)
    assert len(sound) == len(set(sound)) == 2
    run_tool(["cancel", str(run.path)], CHECKOUT)
    assert NOTHING_TO_RETRY in run_tool(["retry", str(run.path)], CHECKOUT).stdout


def send_off(run, sent):
    """Release, resume and start what the controller held, drained or delayed, as administrators do.

    `sent` contains the array tasks that have a start time: another one would delay them.
    """
    for node in set(ask("sinfo", "-h", "-N", "--states=drain", "-o%N").split()):
        administer("update", f"nodename={node}", "state=resume")
    command = ["squeue", "-h", "--array", "--states=PENDING", "-o%i %r"]
    for line in ask(*command, f"--name={run.run_id}.1n1g").splitlines():
        job, reason = line.split(maxsplit=1)
        if "held" in reason:
            administer("release", job)
        if reason == "BeginTime" and job not in sent:
            sent.add(job)
            administer("update", f"jobid={job}", "starttime=now+3")


def administer(*words):
    """Call scontrol, which fails if Slurm has done the same meanwhile."""
    subprocess.run(["scontrol", *words], capture_output=True)
