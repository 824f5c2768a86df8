"""Attempts at full-size models on GPUs, with the ranks that a job would start."""

import os

from dlperf_slurm.worker.frameworks import load_adapter
from support.attempts import Attempt
from support.sessions import CHECKOUT

RANK_CPUS = 8


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
    return Attempt(folder, CHECKOUT, **named, **{**plain, **changes})


def run(attempt):
    """Run an attempt and return its record; raises AssertionError with the reason of a failure."""
    record = attempt.launch().conclude()
    assert record.status == "ok", f"{record.reason}\n{attempt.stderr[-2000:]}"
    return record
