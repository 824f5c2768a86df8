"""A framework for tests, whose steps take a set time, and which fails as SPIN_* variables say.

support.frozen_code copies this file among the adapters of a frozen worker, never into the package.

SPIN_STEP_SECONDS    time of a step (0.002)
SPIN_INFER_SECONDS   time of an inference (0.001)
SPIN_WARMUP_STEPS    number of first steps that take SPIN_WARMUP_SECONDS instead (0)
SPIN_SLOW_RANK       this rank takes twice as long in each step
SPIN_WAIT_FOR        a file: no rank starts before it exists
SPIN_SAMPLE_BYTES    memory of a sample, the only memory in the reported peak (0)
SPIN_FAULT           what goes wrong: one of FAULTS
SPIN_FAULT_RANK      on which rank, or "all" (1)
SPIN_FAULT_STEP      in which step, from 1; 0: in start_session() (5)

From the step of a fault on the other ranks hang without MPI, as in a collective of their framework
whose peer is gone.
"""

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from dlperf_slurm.worker.clock import HostClock
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.out_of_memory import OutOfMemory

SUPPORTED = {"precision": ("fp32", "amp-bf16"), "compiler": ("none",)}
# a test may replace `has_no_memory`
OUT_OF_MEMORY = OutOfMemory(("spin: out of room",), is_certain=lambda error: has_no_memory(error))

SIGNALS = {name: getattr(signal, f"SIG{name.upper()}") for name in ("kill", "bus", "segv", "stop")}
DEADLY_FAULTS = ("crash", "memory", "hog", "leave", "sleep", "hold", "wait", *SIGNALS)
FAULTS = (*DEADLY_FAULTS, "fill", "nan", "count", "weights", "peak")
# a rank that begins this step, after the usual three of the warm-up, leaves a file
SEEN_STEP = 6
HOG_BLOCK_BYTES = 32 * 2**20
HOG_BLOCKS = 64


class SpinError(Exception):
    """The error that the faults "crash" and "peak" raise."""


def has_no_memory(error):
    return False


def start_session(case, rank_info):
    """Start a session, which may already fail here."""
    Path(f"pid-{rank_info.rank}").write_text(str(os.getpid()))
    with Path("starts").open("a") as file:
        file.write(f"rank {rank_info.rank}\n")
    await_file(os.environ.get("SPIN_WAIT_FOR", ""))
    session = SpinSession(case, rank_info)
    session.come_to(0)
    return session


class SpinSession:
    """A session that sleeps instead of computing."""

    device_name = "spin"

    def __init__(self, case, rank_info):
        rank = rank_info.rank
        self.versions = {"spin": "1", "ranks_together": str(rank_info.world_size)}
        self.rank = rank
        self.steps = 0
        self.fault = os.environ.get("SPIN_FAULT", "")
        self.fault_step = int(os.environ.get("SPIN_FAULT_STEP", "5"))
        where = os.environ.get("SPIN_FAULT_RANK", "1")
        self.has_fault = self.fault != "" and where in ("all", str(rank))
        self.warmup_steps = int(os.environ.get("SPIN_WARMUP_STEPS", "0"))
        self.warmup_seconds = float(os.environ.get("SPIN_WARMUP_SECONDS", "0"))
        slowness = 2 if os.environ.get("SPIN_SLOW_RANK") == str(rank) else 1
        sample_bytes = int(os.environ.get("SPIN_SAMPLE_BYTES", "0"))
        self.batch = bytearray(b"x") * (sample_bytes * case.axes.batch_size)
        self.step_seconds = float(os.environ.get("SPIN_STEP_SECONDS", "0.002")) * slowness
        count = load_model(case.model).Definition(**case.model_parameters).parameter_count
        self.parameter_count = count + 1 if self.has_fault and self.fault == "count" else count

    def come_to(self, step):
        """Commit the fault if this is its step; hang if another rank has failed."""
        if self.fault == "fill" and step == self.fault_step:
            fill_disk()
        if self.fault not in DEADLY_FAULTS or step < self.fault_step:
            return
        if self.has_fault:
            commit_fault(self.fault)
        while True:
            time.sleep(60)

    def step(self):
        self.steps += 1
        if self.steps == SEEN_STEP:
            Path(f"stepped-{self.rank}").touch()
        self.come_to(self.steps)
        is_warmup = self.steps <= self.warmup_steps
        time.sleep(self.warmup_seconds if is_warmup else self.step_seconds)

    def infer(self):
        time.sleep(float(os.environ.get("SPIN_INFER_SECONDS", "0.001")))

    def synchronize(self):
        pass

    def make_clock(self, boundaries):
        return HostClock(boundaries)

    def reset_peak_memory(self):
        if self.has_fault and self.fault == "peak":
            raise SpinError("no statistics")

    def read_peak_memory_bytes(self):
        if self.has_fault and self.fault == "peak":
            raise SpinError("no statistics")
        return len(self.batch)

    def describe_attention(self):
        return ""

    def read_loss(self):
        return float("nan") if self.has_fault and self.fault == "nan" else 1.0

    def read_weights(self):
        import numpy

        return {"w": numpy.full(10, 2 if self.has_fault and self.fault == "weights" else 1)}

    def close(self):
        pass


def await_file(path):
    while path and not Path(path).exists():
        time.sleep(0.05)


def fill_disk():
    """Fill the disk to which the ranks write."""
    with suppress(OSError), Path("filler-of-spin").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def commit_fault(fault):
    """End this rank in the way that the fault names."""
    if fault == "crash":
        raise SpinError("told to crash")
    if fault == "memory":
        raise MemoryError("told to have no memory")
    if fault == "hog":
        blocks = [bytearray(os.urandom(1) * HOG_BLOCK_BYTES) for _ in range(HOG_BLOCKS)]
        raise SpinError(f"{len(blocks)} blocks of memory, and still alive")
    if fault == "leave":
        os._exit(0)
    if fault == "hold":
        # native code that keeps the GIL, as PyDLL does, in a deadlock that no signal interrupts
        mutex = ctypes.create_string_buffer(64)
        while True:
            ctypes.PyDLL(None).pthread_mutex_lock(mutex)
    if fault == "wait":
        from mpi4py import MPI

        # for a message that nobody sends
        MPI.COMM_WORLD.Recv(bytearray(1), tag=9)
    if fault in SIGNALS:
        os.kill(os.getpid(), SIGNALS[fault])
    fall_asleep()


def fall_asleep():
    time.sleep(1000)
