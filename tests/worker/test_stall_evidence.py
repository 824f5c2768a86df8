"""Ranks and programs of a host -> the evidence of a stall, within its time limit."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import attempts, sessions
from support.cases import vary

from dlperf_slurm.contract.case import CASE_FILE
from dlperf_slurm.contract.json_files import write_json
from dlperf_slurm.worker import stall_evidence
from dlperf_slurm.worker.host import read_stat
from dlperf_slurm.worker.stall_evidence import (
    RUNNING,
    STALLS_DIR,
    HostEvidence,
    find_wait,
    get_evidence_path,
    is_filled,
    main,
    read_evidence,
    read_native_stack,
)

GDB = """[New LWP 8]
#0  0x7f in epoll_wait () from libc.so.6
#1  0x7f in gloo::transport::tcp::Loop::run() ()
#2  0x7f in PMPI_Allreduce ()

Thread 2 (LWP 8 "python"):
#0  0x7f in ncclCommAbort ()
"""


@pytest.fixture
def put_program(tmp_path, monkeypatch):
    """Return a function that puts a shell script on PATH, which has nothing else of interest."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")

    def put(name, script):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)

    # one of the machine's own must not run
    for name in ("py-spy", "gdb", "ncclras"):
        put(name, "exit 1")
    return put


@pytest.fixture
def rank(tmp_path):
    """Start a process in the place of rank 1, which has its stacks file open, as has its child."""
    stacks = tmp_path / STALLS_DIR / "rank-1.stacks"
    stacks.parent.mkdir()
    stacks.write_text("stacks")
    with stacks.open("a") as file:
        processes = [subprocess.Popen(["sleep", "60"], stdout=file) for _ in range(2)]
    yield processes[0]
    for process in processes:
        process.kill()
        process.wait()


def collect(folder, **changes):
    write_json(folder / CASE_FILE, vary(attempts.CASE, **changes))
    (folder / STALLS_DIR).mkdir(exist_ok=True)
    assert main([str(folder), "n1"]) == 0
    assert is_filled(get_evidence_path(folder, "n1"))
    return read_evidence(folder)


def test_second_tool_takes_the_stacks_of_a_running_rank(tmp_path, put_program, rank):
    put_program("gdb", f'[ "$4" = {rank.pid} ] && cat <<"END"\n{GDB}END')
    put_program("ncclras", "echo one rank is missing")
    assert collect(tmp_path) == [HostEvidence("n1", {"1": "S"}, ())]
    # a rank that has written its stacks gets no signal to do so
    assert rank.poll() is None
    stack = read_native_stack(tmp_path, 1)
    assert stack.startswith("#0  0x7f in epoll_wait")
    assert "ncclCommAbort" not in stack
    assert find_wait(stack) == "gloo::transport"
    assert (tmp_path / STALLS_DIR / "host-n1.ncclras").read_text() == "one rank is missing\n"


def test_stopped_rank_is_not_examined(tmp_path, put_program, rank):
    put_program("gdb", "echo '#0 main'")
    rank.send_signal(signal.SIGSTOP)
    os.waitpid(rank.pid, os.WUNTRACED)
    assert collect(tmp_path) == [HostEvidence("n1", {"1": "T"}, ())]
    assert read_native_stack(tmp_path, 1) == ""


def test_tool_that_hangs_is_ended_and_its_rank_goes_on(tmp_path, put_program, rank, monkeypatch):
    monkeypatch.setattr(stall_evidence, "PROGRAM_SECONDS", 2)
    # the debugger stops its process, and cannot let go of it
    put_program("gdb", f"kill -STOP {rank.pid}; exec sleep 60")
    put_program("ncclras", "exec sleep 60")
    began = time.monotonic()
    assert collect(tmp_path)
    assert time.monotonic() - began < 20
    assert read_native_stack(tmp_path, 1) == ""
    assert read_stat(Path(f"/proc/{rank.pid}"))[1][0] in RUNNING


@pytest.mark.parametrize(
    ("milliwatts", "words"),
    [
        (140_000, "GPU 0: 100% use at 140 of 700 W, as when a GPU waits in a collective"),
        (650_000, "GPU 0: 100% use at 650 of 700 W"),
    ],
)
def test_device_that_is_busy_at_little_power_waits(
    tmp_path, put_program, fake_nvml, milliwatts, words
):
    fake_nvml(
        {
            "UtilizationRates": {"gpu": 100, "memory": 0},
            "PowerUsage": milliwatts,
            "EnforcedPowerLimit": 700_000,
        }
    )
    (evidence,) = collect(tmp_path, device="cuda", topology="1n1g")
    assert evidence.devices == (words,)


@pytest.mark.parametrize(
    ("variables", "is_written"), [({"TORCH_FR_BUFFER_SIZE": "9"}, True), ({}, False)]
)
def test_flight_recorder_of_pytorch_is_written_if_it_is_on(
    tmp_path, torch, monkeypatch, variables, is_written
):
    for name in [name for name in os.environ if name.startswith("TORCH_")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "flight_0"
    sessions.run_elsewhere(record_flight, tmp_path / "meeting", path)
    assert path.exists() is is_written
    if is_written:
        entries = pickle.loads(path.read_bytes())["entries"]
        assert [entry["profiling_name"] for entry in entries] == ["gloo:all_reduce"]


@pytest.mark.parametrize(("nccl", "gloo"), [(b"", b"gloo"), (b"nccl", b"")])
def test_flight_recorder_with_collectives_is_written_of_two(tmp_path, monkeypatch, nccl, gloo):
    # a build for CUDA has both
    recorder = SimpleNamespace(_dump_nccl_trace=lambda: nccl, _dump_fr_trace=lambda: gloo)
    torch = SimpleNamespace(_C=SimpleNamespace(_distributed_c10d=recorder))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "9")
    stall_evidence.dump_flight_recorder(tmp_path / "flight")
    assert (tmp_path / "flight").read_bytes() == nccl + gloo


def record_flight(meeting, path):
    """Take part in a collective of one rank, and write PyTorch's recorder of them."""
    import torch

    method = {"init_method": f"file://{meeting}", "rank": 0, "world_size": 1}
    torch.distributed.init_process_group("gloo", **method)
    torch.distributed.all_reduce(torch.ones(3))
    stall_evidence.dump_flight_recorder(path)
