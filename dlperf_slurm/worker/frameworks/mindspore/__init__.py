"""MindSpore: graph or PyNative mode, its own collectives or NCCL, mixed precision by level "auto".

Written for MindSpore 2.10; not tested on GPUs.
"""

import os

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.frameworks import OF_ALL, RankInfo, list_builders
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.out_of_memory import OutOfMemory
from dlperf_slurm.worker.support import needs_gpu

SUPPORTED = {
    **OF_ALL,
    "model": list_builders(__path__),
    "precision": ("fp32", "tf32", "amp-fp16"),
    # `verify` takes the first one; PyNative mode ("none") costs milliseconds of CPU time per
    # operator
    "compiler": ("graph", "none"),
}

UNSUPPORTED = (needs_gpu("'fp32'", "tf32"),)

# Substrings of a RuntimeError: the memory pools of the CPU (seen), of graphs and of GPUs.
OUT_OF_MEMORY = OutOfMemory(
    (
        "Allocate memory failed",
        "Memory not enough",
        "memory isn't enough",
        "Out of memory",
        "out of memory",
    )
)


def prepare(case: Case, rank_info: RankInfo) -> None:
    """Bind this rank to its own CPUs, if the case runs on CPUs, and set environment variables.

    MindSpore reads these when it is imported or first computes.
    """
    if case.device == "cpu":
        # a graph runs in three threads at once, whatever thread number MindSpore is given
        host.keep_to_cpus(case.cpus_per_rank, rank_info.local_rank)
    os.environ["OMP_NUM_THREADS"] = str(case.cpus_per_rank)
    # 3: errors only (1 is information)
    os.environ.setdefault("GLOG_v", "3")
    if "convolution" in load_model(case.model).LAYERS:
        # With AVX-512, oneDNN 3.10 falls back to its reference implementation for 3x3 convolutions
        # in MindSpore's layouts, which is 50 times as slow; with AVX2 it computes them as matrix
        # products.
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
