"""MindSpore: graph or PyNative mode, its own collectives or NCCL, mixed precision by level "auto".

Written for MindSpore 2.10; not tested on GPUs.
"""

import os
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.worker import host
from dlperf_slurm.worker.frameworks import (
    OF_ALL,
    find_lack_of_gpu,
    find_unknown_values,
    is_memory_error,
    list_builders,
)
from dlperf_slurm.worker.models import load_model

if TYPE_CHECKING:
    from dlperf_slurm.contract.case import Case
    from dlperf_slurm.worker.frameworks import Placement
    from dlperf_slurm.worker.session import Session

SUPPORTED = {
    **OF_ALL,
    "model": list_builders(__path__),
    "precision": ("fp32", "tf32", "amp-fp16"),
    # `verify` takes the first one; PyNative mode ("none") costs milliseconds of CPU time per
    # operator
    "compiler": ("graph", "none"),
}

# Substrings of RuntimeError messages that mean out of memory: the memory pools of the CPU (seen),
# of graphs and of GPUs, cuBLAS, cuDNN, C++.
OUT_OF_MEMORY_MESSAGES = (
    "Allocate memory failed",
    "Memory not enough",
    "memory isn't enough",
    "Out of memory",
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "std::bad_alloc",
)


def find_unsupported(case: "Case") -> Optional[str]:
    """Return why MindSpore cannot run the case and what to use instead, or None if it can."""
    unknown = find_unknown_values(case)
    if unknown:
        return unknown
    if case.device != "cuda" and case.axes.precision == "tf32":
        return find_lack_of_gpu(case, "'fp32'")
    return None


def start(case: "Case", placement: "Placement") -> "Session":
    """Join the process group if there are several ranks, and build model, optimizer and batch."""
    if case.device == "cpu":
        # a graph runs in three threads at once, whatever thread number MindSpore is given
        host.keep_to_cpus(case.cpus_per_rank, placement.local_rank)
    # MindSpore reads these variables when it is imported, or first computes
    os.environ["OMP_NUM_THREADS"] = str(case.cpus_per_rank)
    # 3: errors only (1 is information)
    os.environ.setdefault("GLOG_v", "3")
    if "convolution" in load_model(case.model).LAYERS:
        # With AVX-512, oneDNN 3.10 falls back to its reference implementation for 3x3 convolutions
        # in MindSpore's layouts, which is 50 times as slow; with AVX2 it computes them as matrix
        # products.
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
    from dlperf_slurm.worker.frameworks.mindspore.session import start_session

    return start_session(case, placement)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that the device or the host ran out of memory."""
    return is_memory_error(error, (RuntimeError,), OUT_OF_MEMORY_MESSAGES)
