"""What a failed attempt left behind -> its record, without MPI."""

import subprocess
import sys

import pytest
from support import attempts
from support.attempts import make_environment
from support.cases import vary
from support.frozen_code import PACKAGE
from support.problems import assert_problem

from dlperf_slurm.contract.case import CASE_FILE
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.record import (
    FAILED,
    FAILURES_DIR,
    OK,
    OUT_OF_MEMORY,
    RECORD_FILE,
    Clock,
    Failure,
    RankResult,
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


@pytest.fixture
def attempt_dir(tmp_path):
    write_json(tmp_path / CASE_FILE, CASE)
    (tmp_path / FAILURES_DIR).mkdir()
    return tmp_path


def add_failure(attempt_dir, rank, error="ValueError", is_out_of_memory=False):
    failure = Failure(rank, "n1", error, "told to", "Traceback ...", is_out_of_memory)
    write_json(attempt_dir / FAILURES_DIR / f"rank-{rank}.json", failure)


def conclude(attempt_dir, exit_code):
    conclude_attempt(attempt_dir, exit_code)
    return read_json(attempt_dir / RECORD_FILE, Record)


def test_sound_record_is_left_alone(attempt_dir):
    ranks = tuple(RankResult(rank, rank, "n1", "cpu", 1.0, 0, 1.0) for rank in (0, 1))
    clock = Clock("host", 0.0)
    good = Record(OK, "", CASE, "then", "now", 1, clock, ranks, (), {}, {}, {})
    write_json(attempt_dir / RECORD_FILE, good)
    add_failure(attempt_dir, 1)
    assert conclude(attempt_dir, 1) == good


@pytest.mark.parametrize("text", ["", '{"schema_version": 1, "stat', "[]", '{"status": "ok"}'])
def test_record_that_was_cut_short_is_replaced(attempt_dir, text):
    (attempt_dir / RECORD_FILE).write_text(text)
    assert conclude(attempt_dir, 1).status == FAILED


def test_failures_come_in_the_order_of_the_ranks(attempt_dir):
    for rank in (10, 9, 2):
        add_failure(attempt_dir, rank)
    assert [failure.rank for failure in conclude(attempt_dir, 1).failures] == [2, 9, 10]


def test_reason_is_that_of_the_first_rank(attempt_dir):
    add_failure(attempt_dir, 1, error="KeyError")
    add_failure(attempt_dir, 3)
    assert conclude(attempt_dir, 1).reason == "rank 1 on n1: KeyError: told to"


def test_rank_without_memory_decides_status_and_reason(attempt_dir):
    add_failure(attempt_dir, 0)
    add_failure(attempt_dir, 1, error="OutOfMemoryError", is_out_of_memory=True)
    record = conclude(attempt_dir, 1)
    assert record.status == OUT_OF_MEMORY
    assert record.reason.startswith("rank 1 on n1: OutOfMemoryError")


def test_failure_that_was_cut_short_does_not_hide_the_others(attempt_dir):
    (attempt_dir / FAILURES_DIR / "rank-0.json").write_text('{"rank": 0, "ho')
    add_failure(attempt_dir, 1)
    assert [failure.rank for failure in conclude(attempt_dir, 1).failures] == [1]


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [
        (143, "terminated (SIGTERM)"),
        (137, "killed (SIGKILL)"),
        (0, "without a record"),
        (7, "exit code 7"),
    ],
)
def test_silent_end_is_told_by_its_exit_code(attempt_dir, exit_code, words):
    record = conclude(attempt_dir, exit_code)
    assert record.status == FAILED
    assert words in record.reason
    assert record.failures[0].rank == -1


@pytest.mark.parametrize("line", OOM_LINES)
def test_slurm_saying_that_memory_ran_out_gives_status_oom(attempt_dir, line):
    (attempt_dir / "err").write_text("starting\n" + line + "\n")
    assert conclude(attempt_dir, 137).status == OUT_OF_MEMORY


@pytest.mark.parametrize("line", OOM_LINES)
def test_memory_of_the_host_decides_nothing_of_a_gpu(attempt_dir, line):
    write_json(attempt_dir / CASE_FILE, vary(CASE, device="cuda"))
    (attempt_dir / "err").write_text("starting\n" + line + "\n")
    record = conclude(attempt_dir, 137)
    assert record.status == FAILED
    assert "memory limit" in record.reason


def test_gpu_without_memory_is_out_of_it_though_the_host_was_too(attempt_dir):
    write_json(attempt_dir / CASE_FILE, vary(CASE, device="cuda"))
    add_failure(attempt_dir, 1, error="OutOfMemoryError", is_out_of_memory=True)
    (attempt_dir / "err").write_text(OOM_LINES[0] + "\n")
    assert conclude(attempt_dir, 137).status == OUT_OF_MEMORY


@pytest.mark.parametrize("line", OOM_LINES)
def test_rank_that_lost_its_peer_to_the_memory_limit_does_not_hide_it(attempt_dir, line):
    add_failure(attempt_dir, 0, error="RuntimeError")
    (attempt_dir / "err").write_text(line + "\nConnection closed by peer\n")
    record = conclude(attempt_dir, 1)
    assert record.status == OUT_OF_MEMORY
    assert "memory limit" in record.reason
    assert [failure.rank for failure in record.failures] == [-1, 0]


def test_memory_limit_is_told_by_one_failure_only(attempt_dir):
    add_failure(attempt_dir, 1, error="OutOfMemoryError", is_out_of_memory=True)
    (attempt_dir / "err").write_text(OOM_LINES[0] + "\n")
    assert [failure.rank for failure in conclude(attempt_dir, 1).failures] == [1]


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
    (attempt_dir / "err").write_text(line + "\n")
    record = conclude(attempt_dir, 1)
    assert (record.status, len(record.failures)) == (FAILED, 1)


def test_rank_that_srun_saw_dying_is_named(attempt_dir):
    lines = ["srun: error: n1: task 0: Terminated", "srun: error: n2: task 1: Killed"]
    (attempt_dir / "err").write_text("\n".join(lines) + "\n")
    assert conclude(attempt_dir, 143).reason.endswith("srun: n2: task 1: Killed")


def test_silent_end_keeps_the_end_of_the_log(attempt_dir):
    (attempt_dir / "err").write_text("".join(f"line {n}\n" for n in range(1000)))
    lines = conclude(attempt_dir, 1).failures[0].traceback.splitlines()
    assert lines == [f"line {n}" for n in range(1000 - LOG_TAIL_LINES, 1000)]


def test_log_that_is_no_text_is_no_obstacle(attempt_dir):
    (attempt_dir / "err").write_bytes(b"\xff\xfe\x00 oops\n")
    assert "oops" in conclude(attempt_dir, 1).failures[0].traceback


def test_record_that_cannot_be_written_to_its_end_is_not_there(attempt_dir):
    class Unwritable:
        """A value that JSON does not know, behind many that it does."""

    big = vary(CASE, model_parameters={"a": "x" * 10**6, "b": Unwritable()})
    with pytest.raises(TypeError):
        write_json(attempt_dir / RECORD_FILE, big)
    assert not (attempt_dir / RECORD_FILE).exists()


def test_record_on_a_full_disk_does_not_replace_the_one_before(attempt_dir):
    before = (attempt_dir / CASE_FILE).read_bytes()
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from dlperf_slurm.contract.case import CASE_FILE, Case\n"
        "from dlperf_slurm.contract.json_files import read_json, write_json\n"
        "path = Path(sys.argv[1]) / CASE_FILE\n"
        "case = read_json(path, Case)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "write_json(path, case)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(attempt_dir)],
        env=make_environment(PACKAGE.parent),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "File too large" in done.stderr
    assert (attempt_dir / CASE_FILE).read_bytes() == before


def test_framework_that_aborted_for_lack_of_memory_ran_out_of_it(attempt_dir):
    log = "F20261121 cpu_allocator.cpp:40] allocate failed. 1099511627776\n*** Aborted ***\n"
    (attempt_dir / "err").write_text(log)
    record = conclude(attempt_dir, 134)
    assert record.status == OUT_OF_MEMORY
    assert_problem(record.reason, says=("oneflow", "memory", "err"))


@pytest.mark.parametrize(("lines", "status"), [(100, OUT_OF_MEMORY), (1000, FAILED)])
def test_stack_traces_behind_a_lack_of_memory_do_not_hide_it(attempt_dir, lines, status):
    log = ["F20261121 cpu_allocator.cpp:40] allocate failed. 1099511627776"]
    log += [f"    @ 0x7f00{n:08x} (unknown)" for n in range(lines)]
    (attempt_dir / "err").write_text("\n".join(log) + "\n")
    assert conclude(attempt_dir, 134).status == status


@pytest.mark.parametrize(
    ("exit_code", "srun_error", "status"),
    [
        (143, "", FAILED),
        (130, "", FAILED),
        (143, "srun: error: n1: tasks 0-1: Terminated\n", FAILED),
        (143, "srun: error: n1: tasks 0-1: Killed\n", FAILED),
        # srun ended the others, and returns the highest exit code of all
        (143, "srun: error: n1: task 0: Aborted (core dumped)\n", OUT_OF_MEMORY),
        (134, "", OUT_OF_MEMORY),
    ],
)
def test_what_a_framework_said_counts_only_if_it_ended_by_itself(
    attempt_dir, exit_code, srun_error, status
):
    log = "E cpu_allocator.cpp:40] allocate failed. 1099511627776\n"
    (attempt_dir / "err").write_text(log + srun_error)
    assert conclude(attempt_dir, exit_code).status == status


@pytest.mark.parametrize("exit_code", [1, 134, 143])
def test_memory_that_tensorflow_can_do_without_is_no_lack_of_it(attempt_dir, exit_code):
    write_json(attempt_dir / CASE_FILE, vary(CASE, framework="tensorflow2"))
    log = (
        "W bfc_allocator.cc:311] Allocator (GPU_0_bfc) ran out of memory trying to allocate "
        "2.10GiB with freed_by_count=0. The caller indicates that this is not a failure, but this "
        "may mean that there could be performance gains if more memory were available.\n"
    )
    (attempt_dir / "err").write_text(log)
    assert conclude(attempt_dir, exit_code).status == FAILED


@pytest.mark.parametrize(
    ("framework", "line"),
    [
        ("jax", "CUDA_ERROR_OUT_OF_MEMORY"),
        ("pytorch", "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        ("pytorch", "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        ("tensorflow1", "Not found: No algorithm worked!"),
    ],
)
def test_library_that_had_no_memory_before_an_abort_gives_status_oom(attempt_dir, framework, line):
    write_json(attempt_dir / CASE_FILE, vary(CASE, framework=framework))
    (attempt_dir / "err").write_text(line + "\nAborted (core dumped)\n")
    assert conclude(attempt_dir, 134).status == OUT_OF_MEMORY


def test_rank_that_others_lost_comes_before_what_they_say_of_themselves(attempt_dir):
    add_failure(attempt_dir, 0)
    add_failure(attempt_dir, 1, RANK_LOST)
    record = conclude(attempt_dir, 137)
    assert record.reason == "rank 1 on n1: RankLostError: told to"
    assert [failure.rank for failure in record.failures] == [1, 0]


@pytest.mark.parametrize("lines", ["", "srun: error: n1: tasks 0-1: Terminated\n"])
def test_rank_that_was_lost_as_all_were_told_to_end_is_not_to_blame(attempt_dir, lines):
    add_failure(attempt_dir, 1, RANK_LOST)
    (attempt_dir / "err").write_text(lines)
    record = conclude(attempt_dir, 143)
    assert record.reason.startswith("terminated (SIGTERM)")
    assert [failure.rank for failure in record.failures] == [-1]


def test_rank_that_ended_before_srun_ended_the_others_is_named(attempt_dir):
    add_failure(attempt_dir, 1, RANK_LOST)
    lines = "srun: error: n1: task 1: Killed\nsrun: error: n1: task 0: Terminated\n"
    (attempt_dir / "err").write_text(lines)
    assert conclude(attempt_dir, 143).reason == "rank 1 on n1: RankLostError: told to"


def test_rank_that_was_lost_to_a_lack_of_memory_is_named_behind_it(attempt_dir):
    add_failure(attempt_dir, 1, RANK_LOST)
    (attempt_dir / "err").write_text("F tensor.cpp:1] Out of memory\n")
    record = conclude(attempt_dir, 134)
    assert record.status == OUT_OF_MEMORY
    assert [failure.rank for failure in record.failures] == [-1, 1]
