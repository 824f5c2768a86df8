"""What a failed attempt left behind -> its record, without MPI."""

import pytest
from support import attempts, fake_environment
from support.cases import vary
from support.problems import assert_problem

from dlperf_slurm.contract import record as record_module
from dlperf_slurm.contract.case import CASE_FILE
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.record import (
    FAILED,
    FAILURES_DIR,
    OUT_OF_MEMORY,
    RECORD_FILE,
    Failure,
    Record,
)
from dlperf_slurm.worker.failed_record import LOG_TAIL_LINES, conclude_attempt
from dlperf_slurm.worker.failures import RANK_LOST

CASE = vary(attempts.CASE, framework="oneflow")
OOM_LINES = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=24.0.",
    "slurmstepd: error: Detected 1 oom-kill event(s) in step 24.0 cgroup.",
    "srun: error: n1: task 0: Out Of Memory",
    "Out of memory: Killed process 4711 (python)",
    "Memory cgroup out of memory: Killed process 4711 (python)",
)
TERMINATED = "srun: error: n1: tasks 0-1: Terminated"
# of oneflow
NO_ROOM = "F20261121 cpu_allocator.cpp:40] allocate failed. 1099511627776"
TENSORFLOW_WARNING = (
    "W bfc_allocator.cc:311] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.10GiB "
    "with freed_by_count=0. The caller indicates that this is not a failure, but this may mean "
    "that there could be performance gains if more memory were available."
)


@pytest.fixture
def attempt_dir(tmp_path):
    write_json(tmp_path / CASE_FILE, CASE)
    (tmp_path / FAILURES_DIR).mkdir()
    return tmp_path


def add_failure(attempt_dir, rank, error="ValueError", is_out_of_memory=False):
    failure = Failure(rank, "n1", error, "told to", "Traceback ...", is_out_of_memory)
    write_json(attempt_dir / FAILURES_DIR / f"rank-{rank}.json", failure)


def conclude(attempt_dir, exit_code, *lines, **changes):
    """Conclude an attempt whose ranks have written these lines; return the record."""
    if lines:
        (attempt_dir / "err").write_text("".join(f"{line}\n" for line in lines))
    if changes:
        write_json(attempt_dir / CASE_FILE, vary(CASE, **changes))
    conclude_attempt(attempt_dir, exit_code)
    return read_json(attempt_dir / RECORD_FILE, Record)


def list_ranks(record):
    return [failure.rank for failure in record.failures]


def test_sound_record_is_left_alone(attempt_dir):
    good = fake_environment.make_record(CASE)
    write_json(attempt_dir / RECORD_FILE, good)
    add_failure(attempt_dir, 1)
    assert conclude(attempt_dir, 1) == good


@pytest.mark.parametrize("text", ["", '{"schema_version": 1, "stat', "[]", '{"status": "ok"}'])
def test_record_that_was_cut_short_is_replaced(attempt_dir, text):
    (attempt_dir / RECORD_FILE).write_text(text)
    assert conclude(attempt_dir, 1).status == FAILED


def test_failures_come_in_the_order_of_the_ranks_and_the_first_is_the_reason(attempt_dir):
    for rank in (10, 9, 2):
        add_failure(attempt_dir, rank, error=f"Error{rank}")
    # one that was cut short does not hide the others
    (attempt_dir / FAILURES_DIR / "rank-0.json").write_text('{"rank": 0, "ho')
    record = conclude(attempt_dir, 1)
    assert list_ranks(record) == [2, 9, 10]
    assert record.reason == "rank 2 on n1: Error2: told to"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_rank_without_memory_decides_status_and_reason(attempt_dir, device):
    add_failure(attempt_dir, 0)
    add_failure(attempt_dir, 1, error="OutOfMemoryError", is_out_of_memory=True)
    # and is told once, though the host was out of it too
    record = conclude(attempt_dir, 137, OOM_LINES[0], device=device)
    assert record.status == OUT_OF_MEMORY
    assert record.reason.startswith("rank 1 on n1: OutOfMemoryError")
    assert list_ranks(record) == [0, 1]


@pytest.mark.parametrize("line", OOM_LINES)
@pytest.mark.parametrize(
    ("device", "ranks", "status"),
    [
        ("cpu", [], OUT_OF_MEMORY),
        # one that lost its peer to the limit does not hide it
        ("cpu", [0], OUT_OF_MEMORY),
        # the memory of the host decides nothing of a GPU
        ("cuda", [], FAILED),
    ],
)
def test_slurm_saying_that_memory_ran_out_is_the_reason(attempt_dir, line, device, ranks, status):
    for rank in ranks:
        add_failure(attempt_dir, rank, error="RuntimeError")
    record = conclude(attempt_dir, 137, line, "Connection closed by peer", device=device)
    assert record.status == status
    assert "memory limit" in record.reason
    assert list_ranks(record) == [-1, *ranks]


@pytest.mark.parametrize(
    "line",
    [
        "oneflow: allocate failed.",
        "failed to allocate 2.00GiB from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "W bfc_allocator.cc:363] RESOURCE_EXHAUSTED: Out of memory, trying a smaller region",
    ],
)
def test_warning_of_a_framework_does_not_outweigh_what_a_rank_says(attempt_dir, line):
    add_failure(attempt_dir, 0)
    record = conclude(attempt_dir, 1, line)
    assert (record.status, list_ranks(record)) == (FAILED, [0])


@pytest.mark.parametrize(
    ("exit_code", "lines", "is_told"),
    [
        (143, [], True),
        (130, [TERMINATED], True),
        (143, [TERMINATED, "srun: error: n2: task 1: Killed"], False),
        (137, [TERMINATED], False),
        (1, [], False),
    ],
)
def test_record_says_whether_a_signal_ended_all_ranks(attempt_dir, exit_code, lines, is_told):
    record = conclude(attempt_dir, exit_code, *lines)
    assert (record.failures[0].error == record_module.TERMINATED) is is_told
    assert not record.reason.startswith(record_module.TERMINATED)


@pytest.mark.parametrize(
    ("exit_code", "lines", "reason"),
    [
        (143, [], "terminated (SIGTERM)"),
        (137, [], "killed (SIGKILL)"),
        (135, [], "/dev/shm"),
        (0, [], "neither a result"),
        (7, [], "the error output is empty"),
        (127, ["a", "python: not found", " "], "the error output ends with 'python: not found'"),
        # torchrun, whose agents srun then ends
        (
            143,
            ["port: 20015, useIpv6: false, code: -98, name: EADDRINUSE", TERMINATED],
            "a port was taken by another process; error output: 'port: 20015, ",
        ),
        (143, [TERMINATED, "srun: error: n1: task 0: Exited with exit code 1"], "after a rank had"),
        (
            143,
            ["n/python: Exec format error", "srun: error: n2: task 1: Exited with exit code 126"],
            "a rank could not be started; error output: 'n/python: Exec format error'; srun: n2:",
        ),
        (
            2,
            ["slurmstepd: error: execve(): python: No such file or directory"],
            "a rank could not be started; error output: 'slurmstepd: error: execve(): python",
        ),
        (143, [TERMINATED, "srun: error: n2: task 1: Killed"], "n2: task 1: Killed"),
    ],
)
def test_silent_end_is_explained_by_exit_code_and_log(attempt_dir, exit_code, lines, reason):
    record = conclude(attempt_dir, exit_code, *lines)
    assert reason in record.reason
    assert (record.status, list_ranks(record)) == (FAILED, [-1])


def test_silent_end_keeps_the_end_of_the_log_whatever_is_in_it(attempt_dir):
    lines = "".join(f"line {n}\n" for n in range(1000)).encode()
    (attempt_dir / "err").write_bytes(b"\xff\xfe\x00 oops\n" + lines)
    kept = conclude(attempt_dir, 1).failures[0].traceback.splitlines()
    assert kept == [f"line {n}" for n in range(1000 - LOG_TAIL_LINES, 1000)]


@pytest.mark.parametrize(
    ("framework", "exit_code", "lines", "status"),
    [
        ("oneflow", 134, [NO_ROOM, "*** Aborted ***"], OUT_OF_MEMORY),
        # stack traces behind it do not hide it
        ("oneflow", 134, [NO_ROOM, *["    @ 0x7f00 (unknown)"] * 100], OUT_OF_MEMORY),
        ("oneflow", 134, [NO_ROOM, *["    @ 0x7f00 (unknown)"] * 1000], FAILED),
        # it counts only if the framework ended by itself
        ("oneflow", 143, [NO_ROOM], FAILED),
        ("oneflow", 130, [NO_ROOM], FAILED),
        ("oneflow", 143, [NO_ROOM, TERMINATED], FAILED),
        ("oneflow", 143, [NO_ROOM, "srun: error: n1: tasks 0-1: Killed"], FAILED),
        # srun ended the others, and returns the highest exit code of all
        (
            "oneflow",
            143,
            [NO_ROOM, "srun: error: n1: task 0: Aborted (core dumped)"],
            OUT_OF_MEMORY,
        ),
        # what it can do without is no lack of it
        ("tensorflow2", 134, [TENSORFLOW_WARNING], FAILED),
        ("jax", 134, ["CUDA_ERROR_OUT_OF_MEMORY", "Aborted"], OUT_OF_MEMORY),
        ("pytorch", 134, ["cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "Aborted"], OUT_OF_MEMORY),
        ("tensorflow1", 134, ["Not found: No algorithm worked!", "Aborted"], OUT_OF_MEMORY),
    ],
)
def test_framework_that_aborted_for_lack_of_memory_ran_out_of_it(
    attempt_dir, framework, exit_code, lines, status
):
    record = conclude(attempt_dir, exit_code, *lines, framework=framework)
    assert record.status == status
    if status == OUT_OF_MEMORY:
        assert_problem(record.reason, says=(framework, "memory", "err"))


@pytest.mark.parametrize(
    ("ranks", "exit_code", "lines", "reason", "failures"),
    [
        # before what the others say of themselves
        ([0], 137, [], "rank 1 on n1: RankLostError: told to", [1, 0]),
        # not to blame where all were told to end
        ([], 143, [], "terminated (SIGTERM)", [-1]),
        ([], 143, [TERMINATED], "terminated (SIGTERM)", [-1]),
        # but where it ended before srun ended the others
        (
            [],
            143,
            ["srun: error: n1: task 1: Killed", "srun: error: n1: task 0: Terminated"],
            "rank 1 on n1: RankLostError: told to",
            [1],
        ),
        ([], 134, ["F tensor.cpp:1] Out of memory"], "oneflow ended a process", [-1, 1]),
    ],
)
def test_rank_that_others_lost_is_named(attempt_dir, ranks, exit_code, lines, reason, failures):
    for rank in ranks:
        add_failure(attempt_dir, rank)
    add_failure(attempt_dir, 1, RANK_LOST)
    record = conclude(attempt_dir, exit_code, *lines)
    assert record.reason.startswith(reason)
    assert list_ranks(record) == failures
    assert record.status == (OUT_OF_MEMORY if "Out of memory" in str(lines) else FAILED)
