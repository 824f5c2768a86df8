"""Hanging ranks, and the warning before the time limit, on a real Slurm."""

import numpy
import pytest
from support.slurm_runs import (
    ask,
    await_ranks,
    find_array_job,
    read_records,
    stage_spin,
    submit,
    wait,
)
from support.tool import await_that, find_details, find_states

from dlperf_slurm.contract.record import FAILED, PARTIAL_STEP_SECONDS_FILE

CASES_FAILED = 5
STALL = "stall_seconds = 10"
LIMIT = "memory_limit_mib_per_device = 24"
MANY_STEPS = 100_000


def find_attempt_dir(run):
    (task,) = run.read_all_tasks()
    return run.path / task.attempt_dir / "s0"


def test_rank_that_is_stopped_ends_its_task_and_is_named(cluster, tmp_path):
    run = stage_spin(tmp_path / "results", ["2n1g"], protocol=STALL)
    submit(run, SPIN_FAULT="stop", SPIN_FAULT_STEP="4")
    assert wait(run).returncode == CASES_FAILED
    record = read_records(run)[0]
    assert record.status == FAILED
    hosts = {failure.rank: failure.host for failure in record.failures}
    assert len({hosts[0], hosts[1]}) == 2
    assert f"rank 1 on {hosts[1]}: does not respond" in record.reason
    assert f"rank 0 on {hosts[0]}: step 2 of 5 (measured), at come_to" in record.reason
    assert record.partial_steps == 1
    assert find_details(run)["2n1g.0"] == record.reason


@pytest.mark.parametrize("batch_size", ["2", '"max"'])
def test_warning_before_the_time_limit_ends_the_ranks(cluster, tmp_path, batch_size):
    """Send the signal that the job gets a minute before its time limit."""
    run = stage_spin(tmp_path / "results", ["1n2g"], batch_size=batch_size, protocol=LIMIT)
    submit(run, SPIN_STEP_SECONDS="5", SPIN_SAMPLE_BYTES=str(2**20))
    job = find_array_job(run, "1n2g")
    folder = find_attempt_dir(run)
    await_that(lambda: len(list(folder.glob("**/pid-*"))) == 2, "both ranks start")
    ask("scancel", "--batch", "--signal=USR1", f"{job}_0")
    assert wait(run).returncode == CASES_FAILED
    record = read_records(run)[0]
    assert "time limit: the job reached its time limit: rank" in record.reason
    assert find_states(run) == {"1n2g.0": "FAILED"}


@pytest.mark.faults
def test_time_limit_leaves_what_was_measured_before_it(cluster, tmp_path):
    """Keep the steps before the time limit, which is shortened to a minute, but in no figure."""
    settings = ["time_limit_minutes.default=5"]
    run = stage_spin(tmp_path / "results", ["1n2g"], settings=settings, measured_steps=MANY_STEPS)
    submit(run, SPIN_STEP_SECONDS="0.1")
    await_ranks(run, 1)
    ask("scontrol", "update", f"jobid={find_array_job(run, '1n2g')}", "timelimit=1")
    assert wait(run).returncode == CASES_FAILED
    record = read_records(run)[0]
    assert record.reason.startswith("time limit: ")
    assert record.partial_steps > 0
    seconds = numpy.load(find_attempt_dir(run) / PARTIAL_STEP_SECONDS_FILE)
    assert seconds.shape[0] == 2
    report = (run.path / "report" / "report.md").read_text(encoding="utf-8")
    assert f"{record.partial_steps} of {MANY_STEPS} steps were measured" in report
