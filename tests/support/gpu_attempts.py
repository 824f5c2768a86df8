"""Attempts at full-size models on GPUs, on ranks that need neither MPI nor a scheduler."""

import os
import sys

import pytest

from dlperf_slurm.worker.frameworks import load_adapter
from support import start_ranks
from support.attempts import Attempt
from support.gpu_report import NOT_FOR_THIS_GPU
from support.sessions import CHECKOUT, SMALL, find_lack

RANK_CPUS = 8
# batch sizes that keep a GPU busy at full size; on a CPU models and batches are small
BATCH_SIZES = {"resnet50": 256, "bert": 128, "llama": 8, "vit": 128}
CPU_BATCH_SIZE = 2


class GpuAttempt(Attempt):
    """An attempt whose ranks `start_ranks` starts."""

    def make_rank_command(self):
        worker = [sys.executable, "-m", "dlperf_slurm.worker", "run", "--ranks=torchrun"]
        return [sys.executable, start_ranks.__file__, str(self.case.world_size), *worker]


def make_attempt(folder, framework, model, ranks=1, **changes):
    """Make an attempt at a model in its defined size, without starting it."""
    adapter = load_adapter(framework)
    plain = {
        "compiler": adapter.SUPPORTED["compiler"][0],
        "gradient_sync": adapter.SUPPORTED["gradient_sync"][0],
        "cpus_per_rank": max(1, min(RANK_CPUS, (os.cpu_count() or 1) // ranks)),
        "device": "cuda",
        "model_parameters": {},
    }
    named = {"framework": framework, "model": model, "devices_per_node": ranks}
    return GpuAttempt(folder, CHECKOUT, **named, **{**plain, **changes})


def choose_work(model, device):
    """Return the changes of a case for a benchmark's training of a model, smaller on a CPU."""
    is_gpu = device == "cuda"
    return {
        "model": model,
        "device": device,
        "model_parameters": {} if is_gpu else SMALL[model],
        "batch_size_per_device": BATCH_SIZES[model] if is_gpu else CPU_BATCH_SIZE,
        "memory_format": "channels_last" if model == "resnet50" else "default",
        "clip_global_norm": model != "resnet50",
        "warmup_steps": 15 if is_gpu else 2,
        "measured_steps": 60 if is_gpu else 4,
    }


def run(attempt):
    """Run an attempt and return its record; skips the test of a case that cannot run here.

    Raises AssertionError with the reason of a failure.
    """
    lack = find_lack(attempt.case)
    if lack:
        pytest.skip(f"{NOT_FOR_THIS_GPU}{lack}")
    record = attempt.launch().conclude()
    assert record.status == "ok", f"{record.reason}\n{attempt.stderr[-2000:]}"
    return record
