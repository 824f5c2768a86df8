"""Ranks of `worker run`, by MPI and without: records of good runs and of those that fail."""

import itertools
import os
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
from support import attempts, frozen_code, tasks
from support.fake_environment import fill_disk
from support.problems import assert_problem
from support.sessions import SMALL
from support.small_disk import find_obstacle, mount_disk

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.contract.record import (
    FAILED,
    OK,
    OUT_OF_MEMORY,
    RECORD_FILE,
    STEP_SECONDS_FILE,
    WARMUP_STEP_SECONDS_FILE,
)
from dlperf_slurm.contract.step_archive import DETAILS_FILE
from dlperf_slurm.worker.attempt import check_python
from dlperf_slurm.worker.failures import RANK_LOST
from dlperf_slurm.worker.processes import TIME_LIMIT_SIGNAL
from dlperf_slurm.worker.ranks import FAILURE_GRACE_SECONDS, PlacementError
from dlperf_slurm.worker.watchdog import STALLS_DIR

MPI, SOCKETS = "mpi", "sockets"
STEPS = 20
STEP_SECONDS = 0.01
SLOW_RANK = 1
WARMUP_STEPS = 3
WARMUP_SECONDS = 0.5
# what sleeping may cost beyond what was asked for, on a machine that is busy with other things;
# less than the warm-up takes
SLACK_SECONDS = 1.0
# starting two ranks and ending them, beside the grace that healthy ranks get; on a busy machine
LAUNCH_SECONDS = 45.0
SCENARIOS = {
    "crash": {"fault": "crash"},
    "crash at the start": {"fault": "crash", "fault_step": 0},
    "crash of rank 0": {"fault": "crash", "fault_rank": 0},
    "crash of all": {"fault": "crash", "fault_rank": "all"},
    "kill": {"fault": "kill"},
    "kill of rank 0": {"fault": "kill", "fault_rank": 0},
    "segv": {"fault": "segv"},
    "leave": {"fault": "leave"},
}
SILENT = [name for name in SCENARIOS if name.startswith(("kill", "segv", "leave"))]
_JOB_IDS = itertools.count(1000 * os.getpid())


def run_tasks(attempt, **spin):
    return tasks.run_tasks(attempt, str(next(_JOB_IDS)), **spin)


LAUNCH = {MPI: lambda attempt, **spin: attempt.launch(**spin), SOCKETS: run_tasks}


@pytest.fixture(scope="module")
def code_without_mpi(tmp_path_factory):
    folder = frozen_code.freeze_with_spin(tmp_path_factory.mktemp("without") / "code")
    tasks.forbid_mpi(folder)
    return folder


@pytest.fixture(scope="module", params=[MPI, SOCKETS])
def way(request):
    """How ranks find each other."""
    if request.param == MPI:
        request.getfixturevalue("mpi")
    return request.param


@pytest.fixture(scope="module")
def code(request, way):
    return request.getfixturevalue("code_dir" if way == MPI else "code_without_mpi")


@pytest.fixture(scope="module")
def good(tmp_path_factory, way, code):
    """Run two ranks; the second takes twice as long, and warm-up takes longest."""
    folder = tmp_path_factory.mktemp("good") / "a1"
    attempt = attempts.Attempt(folder, code, warmup_steps=WARMUP_STEPS, measured_steps=STEPS)
    return LAUNCH[way](
        attempt,
        step_seconds=STEP_SECONDS,
        slow_rank=SLOW_RANK,
        warmup_steps=WARMUP_STEPS,
        warmup_seconds=WARMUP_SECONDS,
    )


def test_good_run_has_a_record_of_every_rank(good, way):
    assert good.exit_code == 0, good.stderr
    record = good.read_record()
    assert (record.status, record.case) == (OK, good.case)
    assert [(rank.rank, rank.local_rank) for rank in record.ranks] == [(0, 0), (1, 1)]
    assert (record.versions["spin"], record.versions["ranks_together"]) == ("1", "2")
    assert ("mpi4py" in record.versions) == ("Open MPI" in record.versions.get("mpi", ""))
    assert ("mpi4py" in record.versions) == (way == MPI)
    # what is written is whole
    assert not [path.name for path in good.path.iterdir() if path.name.startswith(".")]


def test_step_times_are_arrays_of_ranks_by_steps_warm_up_apart(good):
    step_seconds = numpy.load(str(good.path / STEP_SECONDS_FILE))
    warmup_step_seconds = numpy.load(str(good.path / WARMUP_STEP_SECONDS_FILE))
    assert step_seconds.shape == (2, STEPS)
    assert warmup_step_seconds.shape == (2, WARMUP_STEPS)
    assert step_seconds.min() >= STEP_SECONDS
    assert step_seconds.max() < WARMUP_SECONDS <= warmup_step_seconds.min()
    for rank in good.read_record().ranks:
        assert rank.window_seconds == pytest.approx(step_seconds[rank.rank].sum(), abs=0.1)


def test_slowest_rank_decides_the_throughput(good):
    record = good.read_record()
    fast, slow = (rank.window_seconds for rank in record.ranks)
    assert STEPS * STEP_SECONDS <= fast < STEPS * STEP_SECONDS + SLACK_SECONDS
    assert 2 * STEPS * STEP_SECONDS <= slow < 2 * STEPS * STEP_SECONDS + SLACK_SECONDS
    assert record.samples_per_s == pytest.approx(4 * 2 * STEPS / max(fast, slow))


def test_concluding_a_good_run_leaves_its_record_and_folds_its_step_times(good):
    record = (good.path / RECORD_FILE).read_bytes()
    step_seconds = numpy.load(str(good.path / STEP_SECONDS_FILE))
    good.conclude()
    assert (good.path / RECORD_FILE).read_bytes() == record
    with numpy.load(str(good.path / DETAILS_FILE)) as details:
        assert (details["step_seconds"] == step_seconds).all()
        assert details["warmup_step_seconds"].shape == (2, WARMUP_STEPS)


def test_secret_of_the_ranks_stands_in_no_file(good):
    files = [path for path in good.path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if tasks.SECRET.encode() in path.read_bytes()]


def test_throughput_of_inference_is_that_of_its_latencies(tmp_path, code_dir, mpi):
    """Its product with the mean latency over the batch is 1, of each rank by its own window."""
    attempt = attempts.Attempt(tmp_path / "a1", code_dir, mode=INFER, measured_steps=5 * STEPS)
    # a step in place of an inference would take longer than all of them
    record = attempt.launch(infer_seconds=0.003, step_seconds=10).conclude()
    assert record.status == OK, attempt.stderr
    assert (record.clock.name, record.versions["ranks_together"]) == ("host", "1")
    latencies = numpy.load(str(attempt.path / STEP_SECONDS_FILE))
    assert latencies.shape == (2, 5 * STEPS)
    assert latencies.min() >= 0.003
    for rank in record.ranks:
        batches_per_s = 5 * STEPS / rank.window_seconds
        assert batches_per_s * latencies[rank.rank].mean() == pytest.approx(1, rel=2e-3)
    product = record.samples_per_s * latencies.mean(axis=1).max() / record.case.global_batch_size
    assert product == pytest.approx(1, rel=2e-3)


@pytest.fixture(scope="module")
def failed(tmp_path_factory, way, code):
    """One attempt per scenario, several at a time: most of their time is waiting for the end."""
    folder = tmp_path_factory.mktemp("attempts")
    launched = {name: attempts.Attempt(folder / name, code) for name in SCENARIOS}
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: LAUNCH[way](launched[name], **SCENARIOS[name]), SCENARIOS))
    return launched


@pytest.mark.integration
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_rank_that_fails_ends_the_others_in_bounded_time(failed, scenario):
    attempt = failed[scenario]
    assert attempt.exit_code != 0
    assert attempt.seconds < FAILURE_GRACE_SECONDS + LAUNCH_SECONDS
    attempts.await_ends(attempt)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("scenario", "rank", "function"),
    [
        ("crash", 1, "come_to"),
        ("crash at the start", 1, "start"),
        ("crash of rank 0", 0, "come_to"),
    ],
)
def test_crash_of_a_rank_becomes_a_failed_record_with_its_traceback(
    failed, way, scenario, rank, function
):
    record = failed[scenario].conclude()
    assert record.status == FAILED
    assert re.match(f"rank {rank} on .*SpinError: told to crash$", record.reason)
    (failure,) = record.failures
    assert (failure.rank, failure.error, failure.message) == (rank, "SpinError", "told to crash")
    assert re.search(f"spin/session.py.*in {function}", failure.traceback, re.S)
    assert ("MPI_ABORT" if way == MPI else f"ends: rank {rank} failed") in failed[scenario].stderr


@pytest.mark.integration
def test_ranks_that_all_crash_all_say_why_and_do_not_end_each_other(failed):
    attempt = failed["crash of all"]
    failures = attempt.conclude().failures
    assert [(one.rank, one.error) for one in failures] == [(0, "SpinError"), (1, "SpinError")]
    assert "MPI_ABORT" not in attempt.stderr
    assert "ends: rank" not in attempt.stderr


@pytest.mark.integration
@pytest.mark.parametrize("scenario", SILENT)
def test_rank_that_dies_without_a_word_is_in_the_record(failed, way, scenario):
    attempt = failed[scenario]
    record = attempt.conclude()
    assert record.status == FAILED
    if way == SOCKETS:
        assert_lost(record, 0 if scenario == "kill of rank 0" else 1)
        return
    code = attempt.exit_code
    killed = ("SIGKILL", "memory")
    says = killed if code == 137 else (f"exit code {code}", "no rank", "error output")
    assert_problem(record.reason, says=says)


def assert_lost(record, rank):
    assert [(failure.rank, failure.error) for failure in record.failures] == [(rank, RANK_LOST)]
    assert record.failures[0].host
    assert record.reason.startswith(f"rank {rank} on {record.failures[0].host}: {RANK_LOST}")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("fault", "rank", "status", "words"),
    [
        ("memory", 1, OUT_OF_MEMORY, "rank 1 on .*MemoryError"),
        ("nan", 1, FAILED, "rank 1 .*loss of nan"),
        ("count", "all", FAILED, "parameters"),
        ("weights", 1, FAILED, "weights differ between the ranks"),
    ],
)
def test_run_that_cannot_be_used_says_why(attempt, fault, rank, status, words):
    record = run_tasks(attempt, fault=fault, fault_rank=rank).conclude()
    assert record.status == status
    assert re.search(words, record.reason)
    attempts.await_ends(attempt)


def test_run_whose_peak_memory_cannot_be_read_has_a_record_without(tmp_path, code_without_mpi):
    attempt = attempts.Attempt(tmp_path / "a1", code_without_mpi)
    record = run_tasks(attempt, fault="peak", fault_rank="all").conclude()
    assert (record.status, {rank.peak_memory_bytes for rank in record.ranks}) == (OK, {0})
    assert "no statistics" in attempt.stderr


SPIN = """
import subprocess, sys
from dlperf_slurm.worker import servers
from dlperf_slurm.worker.frameworks.spin import session as spin
from dlperf_slurm.worker.frameworks.spin.session import *
"""
SERVER = 'servers.WatchedServers([subprocess.Popen([sys.executable, "-c", "exit(3)"])])'


# spin, but for how a rank commits its fault or tells of it
@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "function", "body", "error"),
    [
        ("leaving", "commit_fault", "raise SystemExit(0)", "SystemExit: 0"),
        ("told", "commit_fault", "os.kill(os.getpid(), signal.SIGINT)", "KeyboardInterrupt: "),
        ("serving", "commit_fault", f"{SERVER}; time.sleep(1000)", "ServerError: .* exit code 3"),
        ("odd", "has_no_memory", "raise AttributeError('x')", "SpinError: told to crash"),
    ],
)
def test_odd_end_of_a_rank_ends_the_others_and_is_told(
    tmp_path, code_dir, mpi, name, function, body, error
):
    text = f"{SPIN}def {function}(what):\n    {body}\nspin.{function} = {function}\n"
    frozen_code.add_framework(name, text, code_dir)
    attempt = attempts.Attempt(tmp_path / "a1", code_dir, framework=name)
    record = attempt.launch(fault="crash").conclude()
    assert attempt.seconds < FAILURE_GRACE_SECONDS + LAUNCH_SECONDS
    assert record.status == FAILED
    assert re.match(f"rank 1 on .*{error}$", record.reason)


@pytest.mark.integration
def test_process_without_a_launcher_says_that_its_mpi_is_alone(tmp_path, code_dir, mpi):
    attempt = attempts.Attempt(tmp_path / "a1", code_dir).launch_alone()
    assert attempt.exit_code == 1
    failure = attempt.read_failure(0)
    assert failure["error"] == "PlacementError"
    assert_problem(failure["message"], says=("MPI", "1 rank(s)", "srun --mpi=list"))


@pytest.mark.integration
def test_rank_that_cannot_write_its_failure_ends_the_others(tmp_path, code_dir, mpi):
    attempt = attempts.Attempt(tmp_path / "a1", code_dir)
    (attempt.path / "failures").write_text("no folder")
    attempt.launch(fault="crash")
    assert attempt.exit_code != 0
    assert attempt.seconds < FAILURE_GRACE_SECONDS + LAUNCH_SECONDS
    assert "told to crash" in attempt.stderr


@pytest.mark.integration
@pytest.mark.skipif(find_obstacle() != "", reason=find_obstacle())
def test_disk_that_fills_while_ranks_measure_is_named_in_their_record(tmp_path, code_dir, mpi):
    with mount_disk(tmp_path / "disk", 8) as disk:
        attempt = attempts.Attempt(disk / "a1", code_dir)
        # as the job script does, which gives it back before it concludes
        reserve = attempt.path / ".reserve"
        reserve.write_bytes(bytes(2**20))
        fill_disk(disk, 16 * 1024)
        attempt.launch(fault="fill", fault_rank="all", fault_step=2)
        assert attempt.exit_code != 0
        assert len(attempt.stderr) < 4000, attempt.stderr
        assert "Traceback" not in attempt.stderr, attempt.stderr
        reserve.unlink()
        record = attempt.conclude()
    assert record.status == FAILED
    assert str(disk) in record.reason
    assert "No space left" in record.reason or "is full" in record.reason


@pytest.fixture
def attempt(tmp_path, code_without_mpi):
    return attempts.Attempt(tmp_path / "a1", code_without_mpi)


@pytest.mark.parametrize("switch", ["0", "1"])
def test_case_is_deterministic_if_its_environment_says_so(attempt, monkeypatch, switch):
    monkeypatch.setenv("DLPERF_SLURM_DETERMINISTIC", switch)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    platform = run_tasks(attempt).read_record().platform
    assert platform["env.DLPERF_SLURM_DETERMINISTIC"] == switch
    assert ("env.CUBLAS_WORKSPACE_CONFIG" in platform) == (switch == "1")


@pytest.mark.integration
def test_torchrun_starts_ranks_that_find_each_other_and_hear_of_one_that_is_killed(
    tmp_path, code_without_mpi, torch
):
    good, killed = (
        tasks.run_torchrun(attempts.Attempt(tmp_path / name, code_without_mpi), fault=fault)
        for name, fault in (("good", ""), ("killed", "kill"))
    )
    assert good.exit_code == 0, good.stderr
    assert [rank.local_rank for rank in good.read_record().ranks] == [0, 1]
    assert killed.exit_code != 0
    assert killed.seconds < LAUNCH_SECONDS
    assert_lost(killed.conclude(), 1)


@pytest.mark.integration
@pytest.mark.parametrize("rank", [0, 1])
def test_rank_without_mpi_that_stands_still_is_named_by_the_watch(tmp_path, code_without_mpi, rank):
    attempt = attempts.Attempt(tmp_path / "a1", code_without_mpi, stall_seconds=8.0)
    record = run_tasks(attempt, fault="sleep", fault_rank=rank).conclude()
    assert record.status == FAILED
    assert re.match(r"stalled: .* \d+ s.*: rank", record.reason)
    assert RANK_LOST not in {failure.error for failure in record.failures}
    assert (attempt.path / STALLS_DIR).is_dir()


@pytest.fixture
def endless(tmp_path, code_without_mpi):
    return attempts.Attempt(tmp_path / "a1", code_without_mpi, measured_steps=10000)


@pytest.mark.integration
def test_job_that_is_told_to_end_names_no_rank(endless):
    started = tasks.Tasks(endless, str(next(_JOB_IDS)), step_seconds=0.1)
    attempts.await_starts(endless)
    for process in started.processes:
        process.send_signal(signal.SIGTERM)
    record = started.wait().conclude()
    assert endless.exit_code == 143, endless.stderr
    assert record.reason.startswith("terminated (SIGTERM)")


@pytest.mark.integration
def test_torchrun_hands_the_warning_before_the_time_limit_on(endless, torch):
    process = tasks.start_torchrun(endless, step_seconds=0.1)
    attempts.await_starts(endless)
    process.send_signal(TIME_LIMIT_SIGNAL)
    assert endless.finish(process).conclude().reason.startswith("time limit: ")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("rank", "variables", "says"),
    [
        (0, {}, ("srun", "SLURM_STEP_NODELIST")),
        (2, tasks.make_task_variables(2, 3, "7"), ("3 rank(s)", "topology", "2")),
    ],
)
def test_process_that_cannot_be_a_rank_says_why(attempt, rank, variables, says):
    done = subprocess.run(
        [*tasks.name_worker("slurm"), str(attempt.path)],
        cwd=str(attempt.path),
        env={**tasks.make_environment(attempt), **variables},
        stderr=subprocess.PIPE,
    )
    assert done.returncode == 1
    assert_problem(attempt.read_failure(rank)["message"], says=says)


@pytest.mark.integration
def test_pytorch_trains_on_ranks_of_torchrun(tmp_path, torch):
    """Its own ranks come together by ours, beside torchrun's rendezvous for them.

    The record is valid only if their weights, trained on different batches, are the same.
    """
    frozen_code.freeze_worker(tmp_path / "code")
    tasks.forbid_mpi(tmp_path / "code")
    changes = {"framework": "pytorch", "model_parameters": SMALL["bert"], "measured_steps": 3}
    attempt = attempts.Attempt(tmp_path / "torchrun", tmp_path / "code", **changes)
    assert tasks.run_torchrun(attempt).exit_code == 0, attempt.stderr
    record = attempt.read_record()
    assert record.status == OK
    assert len({rank.final_loss for rank in record.ranks}) == 2


def test_node_that_cannot_run_the_python_of_the_environment_says_so(tmp_path, monkeypatch):
    python = tmp_path / "python"
    monkeypatch.setenv("DLPERF_SLURM_PYTHON", str(python))
    with pytest.raises(PlacementError, match=f"cannot be run on .*: {python}"):
        check_python()
    python.touch(mode=0o755)
    check_python()
