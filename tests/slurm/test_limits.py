"""Limits and refusals of a real Slurm: groups wait for queue slots; changed site values work."""

import signal

import pytest
from support.slurm_runs import (
    CHECKOUT,
    ask,
    assert_array_tasks_in_accounting,
    build_quick_submit,
    count_starts_of_rank_0,
    stage_quick,
    stage_spin,
    submit,
)
from support.tool import run_tool, start_tool

from dlperf_slurm.jobs.journal import SUBMITTED, read_journal

pytestmark = pytest.mark.usefixtures("empty_queue")

SCHEDULER_ERROR = 3
# this QOS allows a user four array tasks in the queue
SETTINGS = ["qos=limited", "array_throttle=1"]


def list_submitted(run):
    return [event.group_id for event in read_journal(run.path) if event.event == SUBMITTED]


def test_submission_that_waits_submits_the_rest_as_room_appears(cluster, tmp_path):
    groups = ["1n1g", "1n2g", "2n1g"]
    run = stage_spin(tmp_path / "results", groups, repeats=2, settings=SETTINGS)
    left = submit(run)
    assert left.returncode == SCHEDULER_ERROR
    assert "2 of 3 array jobs are submitted, and continue." in left.stderr
    assert f"dlperf-slurm resume {run.path}" in left.stderr
    done = submit(run, "--wait")
    assert done.returncode == 0, done.stderr
    assert (
        "2n1g is not submitted yet: sbatch failed: sbatch: error: QOSMaxSubmitJobPerUser"
        in done.stdout
    )
    assert "6/6 done: 6 COMPLETED" in done.stdout
    assert list_submitted(run) == groups
    assert_array_tasks_in_accounting(run, 6)


def test_queue_of_four_is_fed_without_a_refusal_whoever_is_killed_meanwhile(cluster, tmp_path):
    run = stage_quick(tmp_path, ["qos=limited", "max_submitted=4"], repeats=10)
    submitter = start_tool(["resume", str(run.path), "--wait"], CHECKOUT)
    line = ""
    while "is not submitted yet: more than max_submitted = 4" not in line:
        line = submitter.stdout.readline()
        assert "QOSMaxSubmitJobPerUser" not in line
        assert line, submitter.stderr.read()
    submitter.send_signal(signal.SIGKILL)
    submitter.communicate()
    done = submit(run, "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "QOSMaxSubmitJobPerUser" not in done.stdout
    assert "10 of 10 repeats measured" in " ".join(done.stdout.split())
    assert count_starts_of_rank_0(run) == [1] * 10
    assert_array_tasks_in_accounting(run, 10)


def test_account_that_was_refused_is_mended(cluster, tmp_path):
    run = stage_spin(tmp_path / "results", settings=["account=nobody", "directives=[]"])
    refused = submit(run)
    assert refused.returncode == SCHEDULER_ERROR
    assert f"dlperf-slurm resume {run.path} (--set KEY=VALUE" in refused.stderr
    done = submit(run, "--set", "account=test", "--wait")
    assert done.returncode == 0, done.stderr
    assert "changed site setting: account: 'nobody' -> 'test'" in done.stdout
    report = run_tool(["report", str(run.path)], CHECKOUT)
    assert "changed after submission: account: 'nobody' -> 'test'" in " ".join(
        report.stdout.split()
    )


def test_what_sbatch_takes_for_its_qos_is_not_refused(cluster, tmp_path):
    # a time limit of five minutes; the partition gives two, but not to this QOS
    command = build_quick_submit(tmp_path, "partition=small", "qos=high")
    refused = run_tool(command, CHECKOUT)
    assert refused.returncode == SCHEDULER_ERROR
    assert "partition small allows jobs of 2 min at most; requested: 5 min" in refused.stderr
    modify = ("sacctmgr", "-i", "modify", "qos", "high", "set")
    ask(*modify, "flags+=PartitionTimeLimit")
    try:
        done = run_tool([*command, "--wait"], CHECKOUT)
    finally:
        ask(*modify, "flags-=PartitionTimeLimit")
    assert done.returncode == 0, done.stdout + done.stderr


def test_partition_of_the_shell_that_the_site_inherits_counts(cluster, tmp_path):
    command = build_quick_submit(tmp_path, 'inherit=["SBATCH_PARTITION"]')
    default = ("scontrol", "update", "partitionname=main")
    ask(*default, "default=no")
    try:
        done = run_tool([*command, "--wait"], CHECKOUT, {"SBATCH_PARTITION": "main"})
    finally:
        ask(*default, "default=yes")
    assert done.returncode == 0, done.stdout + done.stderr
