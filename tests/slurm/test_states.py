"""Array tasks that do not complete on a real Slurm, and the states that the tool reports."""

import re
import time

import pytest
from support.slurm_runs import (
    ask,
    await_ranks,
    count_starts_of_rank_0,
    find_array_job,
    read_records,
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
    start_tool,
)

from dlperf_slurm.contract.record import OUT_OF_MEMORY

CASES_FAILED = 5
CANCELLED_PAIR = {"1n1g.0": "CANCELLED", "1n1g.1": "CANCELLED"}


def test_pending_tasks_that_someone_cancels_are_not_completed(cluster, tmp_path, gate):
    settings = ["tracking.lost_after_seconds=3"]
    run = start_spin(gate, tmp_path / "results", repeats=3, settings=settings)
    ask("scancel", f"{find_array_job(run)}_[1-2]")
    gate.touch()
    assert wait(run).returncode == CASES_FAILED
    states = find_states(run)
    assert states.pop("1n1g.0") == "COMPLETED"
    # Slurm may forget cancelled tasks of a pending array at once, so that no one knows their state
    assert set(states.values()) <= {"CANCELLED", "LOST"}


def test_pending_array_that_someone_cancels_is_cancelled(cluster, tmp_path):
    run = stage_spin(tmp_path / "results", repeats=2, settings=['directives=["--hold"]'])
    submit(run)
    ask("scancel", find_array_job(run))
    assert wait(run).returncode == CASES_FAILED
    assert find_states(run) == CANCELLED_PAIR


def test_running_task_that_someone_cancels_is_cancelled(cluster, tmp_path, gate):
    run = start_spin(gate, tmp_path / "results")
    ask("scancel", find_array_job(run))
    assert wait(run).returncode == CASES_FAILED
    assert find_states(run) == {"1n1g.0": "CANCELLED"}


def test_task_that_waits_after_a_requeue_is_not_over(cluster, tmp_path, gate):
    settings = ["tracking.lost_after_seconds=1", "directives=[]"]
    run = start_spin(gate, tmp_path / "results", settings=settings)
    job = find_array_job(run)
    ask("scontrol", "requeue", job)
    await_that(lambda: ask("squeue", "-h", "-o%T", f"-j{job}") == "PENDING\n", "it is requeued")
    ended = run.path / "markers" / "1n1g.0.s0.finished"
    await_that(lambda: time.time() - ended.stat().st_mtime > 2, "it ended a while ago")
    assert find_states(run) == {"1n1g.0": "PENDING"}
    gate.touch()
    ask("scontrol", "update", f"jobid={job}", "starttime=now+1")
    assert wait(run).returncode == 0
    assert count_starts_of_rank_0(run) == [2]


def test_task_whose_script_wrote_no_marker_is_not_followed_for_ever(cluster, tmp_path):
    run = stage_spin(tmp_path / "results", settings=["tracking.lost_after_seconds=2"])
    (task,) = run.read_all_tasks()
    # as if another job had claimed the attempt and vanished
    folder = run.path / task.attempt_dir
    folder.mkdir(parents=True)
    (folder / "claim").symlink_to("1")
    submit(run)
    assert wait(run).returncode == CASES_FAILED
    assert find_states(run) == {"1n1g.0": "LOST"}


def test_task_beyond_its_time_limit_is_timed_out(cluster, tmp_path, gate):
    run = start_spin(gate, tmp_path / "results")
    # --time is in minutes; setting the end time ends the job at once, before its ranks get the
    # warning
    ask("scontrol", "update", f"jobid={find_array_job(run)}", "endtime=now")
    assert wait(run).returncode == CASES_FAILED
    assert find_states(run) == {"1n1g.0": "TIMEOUT"}


@pytest.mark.parametrize(
    ("topology", "fault", "reason"),
    [
        ("1n2g", "kill", "task 1: Killed"),
        ("1n2g", "bus", "SIGBUS.*df .dev.shm"),
        ("2n1g", "crash", r"^rank 1 on n.*SpinError: told to crash$"),
    ],
)
def test_rank_that_fails_fails_its_task_with_a_reason(cluster, tmp_path, topology, fault, reason):
    run = stage_spin(tmp_path / "results", [topology])
    submit(run, SPIN_FAULT=fault)
    assert wait(run).returncode == CASES_FAILED
    assert find_states(run) == {f"{topology}.0": "FAILED"}
    assert re.search(reason, find_details(run)[f"{topology}.0"])


def test_memory_beyond_the_job_limit_is_out_of_memory(cluster, tmp_path):
    if not cluster.has_memory_limits:
        pytest.skip("needs a cgroup v1 memory hierarchy: see tests/cluster/README.md")
    run = stage_spin(tmp_path / "results", ["1n2g"], settings=["memory_mib_per_node=400"])
    submit(run, SPIN_FAULT="hog")
    assert wait(run).returncode == CASES_FAILED
    (record,) = read_records(run)
    assert record.status == OUT_OF_MEMORY
    assert find_states(run) == {"1n2g.0": "OUT_OF_MEMORY"}


def test_job_around_the_tool_does_not_leak_into_its_jobs(cluster, tmp_path):
    run = stage_spin(tmp_path / "results", ["2n2g"])
    done = submit(
        run,
        "--wait",
        SLURM_NTASKS="1",
        SLURM_NNODES="1",
        SLURM_NTASKS_PER_NODE="1",
        SLURM_CPUS_PER_TASK="3",
        SLURM_JOB_ID="1",
        SLURM_HET_SIZE="2",
        SLURM_JOB_ID_HET_GROUP_0="1",
        SLURM_MEM_PER_NODE="10",
        SBATCH_PARTITION="nosuch",
        PMI_RANK="0",
        PMIX_RANK="0",
        OMPI_COMM_WORLD_SIZE="1",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = read_records(run)
    assert [rank.rank for rank in record.ranks] == [0, 1, 2, 3]


@pytest.fixture(scope="module")
def crashed(cluster, tmp_path_factory):
    """Crash node n2 under two runs, one whose job may be requeued and one whose job may not.

    Slurm delays a requeued job by two minutes; the test shortens the delay.
    """
    folder = tmp_path_factory.mktemp("crash")
    directives = {"requeued": '["--nodelist=n2"]', "final": '["--nodelist=n2", "--no-requeue"]'}
    runs = {
        name: stage_spin(folder / name, settings=[f"directives={lines}", "retry.node_fail=0"])
        for name, lines in directives.items()
    }
    for run in runs.values():
        submit(run, SPIN_WAIT_FOR=str(folder / "gate"))
    for run in runs.values():
        await_ranks(run, 1)
    followers = [start_tool(["wait", str(run.path)], folder) for run in runs.values()]
    cluster.call("crash", "n2")
    (folder / "gate").touch()
    job = find_array_job(runs["requeued"])
    await_that(lambda: ask("squeue", "-h", "-o%T", f"-j{job}") == "PENDING\n", "it is requeued")
    cluster.call("start", "n2")
    ask("scontrol", "update", f"jobid={job}", "starttime=now+3")
    exit_codes = {}
    for name, follower in zip(runs, followers):
        follower.communicate(timeout=DEADLINE_SECONDS)
        exit_codes[name] = follower.returncode
    return runs, exit_codes


def test_task_of_a_node_that_died_is_a_node_failure(crashed):
    runs, exit_codes = crashed
    assert find_states(runs["final"]) == {"1n1g.0": "NODE_FAIL"}
    assert exit_codes["final"] == CASES_FAILED


def test_requeued_task_of_a_node_that_died_runs_to_its_end(crashed):
    runs, exit_codes = crashed
    assert find_states(runs["requeued"]) == {"1n1g.0": "COMPLETED"}
    assert exit_codes["requeued"] == 0
    assert count_starts_of_rank_0(runs["requeued"]) == [2]
