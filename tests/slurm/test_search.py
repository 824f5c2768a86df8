"""Searches for the largest batch size on a real Slurm: several steps of srun in one job."""

import pytest
from support.slurm_runs import ask, find_array_job, read_records, stage_spin, submit, wait
from support.tool import await_that, find_details, find_states

from dlperf_slurm.contract.record import OK

MIB = 2**20
CASES_FAILED = 5


def test_largest_batch_on_two_nodes_is_the_same_in_all_repeats(cluster, tmp_path):
    limit = "memory_limit_mib_per_device = 24"
    run = stage_spin(tmp_path / "results", ["2n2g"], 2, batch_size='"max"', protocol=limit)
    done = submit(run, "--wait", SPIN_SAMPLE_BYTES=str(MIB))
    assert done.returncode == 0, done.stdout + done.stderr
    for record in read_records(run):
        assert (record.status, record.case.axes.batch_size) == (OK, 24)
        assert len({rank.host for rank in record.ranks}) == 2
        trials = [(t.batch_size_per_device, t.is_out_of_memory) for t in record.batch_trials]
        assert trials == [(8, False), (16, False), (32, True), (24, False)]


def test_search_goes_on_after_slurm_killed_a_trial_for_its_memory(cluster, tmp_path):
    if not cluster.has_memory_limits:
        pytest.skip("needs a cgroup v1 memory hierarchy: see tests/cluster/README.md")
    settings = ["memory_mib_per_node=400"]
    run = stage_spin(tmp_path / "results", settings=settings, batch_size='"max"')
    done = submit(run, "--wait", SPIN_SAMPLE_BYTES=str(16 * MIB))
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = read_records(run)
    assert (record.status, record.case.axes.batch_size) == (OK, 16)
    trials = [(t.batch_size_per_device, t.is_out_of_memory) for t in record.batch_trials]
    assert trials == [(8, False), (16, False), (32, True), (24, True)]
    assert find_states(run) == {"1n1g.0": "COMPLETED"}


def test_search_beyond_its_time_limit_is_timed_out(cluster, tmp_path):
    run = stage_spin(tmp_path / "results", batch_size='"max"')
    submit(run, SPIN_WAIT_FOR=str(tmp_path / "never"))
    (task,) = run.read_all_tasks()
    starts = run.path / task.attempt_dir / "s0" / "trials" / "b8" / "starts"
    await_that(starts.exists, "the first trial runs")
    ask("scontrol", "update", f"jobid={find_array_job(run)}", "endtime=now+2")
    assert wait(run).returncode == CASES_FAILED
    # Slurm's limit, or the ranks' own reason if they end before it
    (state,) = find_states(run).values()
    (detail,) = find_details(run).values()
    assert state == "TIMEOUT" or (state, detail[:11]) == ("FAILED", "time limit:")
