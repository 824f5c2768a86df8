"""MegEngine: eager or traced, data parallel by its own NCCL collectives or by MPI.

Written for MegEngine 1.13; not tested on GPUs. Its wheel is built for CUDA 10.1, with code for GPUs
up to Turing (sm_75) and PTX for newer ones.
"""

from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import FOLDER, PIPELINE, TRAIN
from dlperf_slurm.worker import host
from dlperf_slurm.worker.frameworks import (
    OF_ALL,
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
    "precision": ("fp32", "amp-fp16"),
    "compiler": ("none", "trace"),
    "gradient_sync": ("native", "mpi"),
}

# Substrings of RuntimeError messages that mean out of memory: the CPU's and the GPU's allocators,
# cuBLAS, C++.
OUT_OF_MEMORY_MESSAGES = (
    "failed to malloc",
    "failed to alloc",
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "std::bad_alloc",
)


def find_unsupported(case: "Case") -> Optional[str]:
    """Return why MegEngine cannot run the case and what to use instead, or None if it can.

    Its matrix products and convolutions do not support bfloat16, and its CUDA is older than TF32.
    """
    unknown = find_unknown_values(case)
    if unknown:
        return unknown
    if (
        case.axes.precision == "amp-fp16"
        and case.device == "cpu"
        and "max pooling" in load_model(case.model).LAYERS
    ):
        return (
            f"megengine: precision 'amp-fp16' needs device 'cuda' for {case.model!r}: max pooling "
            "in float16 is wrong on the CPU; use 'fp32'"
        )
    if case.axes.data in (PIPELINE, FOLDER) and case.axes.prefetch_batches != 2:
        return (
            "megengine: each process of its DataLoader is 2 batches ahead, with no setting for it; "
            "use prefetch_batches = 2"
        )
    return find_untrainable(case) if case.axes.mode == TRAIN else None


def find_untrainable(case: "Case") -> Optional[str]:
    """Return why MegEngine can infer but not train the case, or None."""
    if case.axes.gradient_sync == "native" and case.device == "cpu" and case.world_size > 1:
        return "megengine: gradient_sync 'native' has no collectives on the CPU; use 'mpi'"
    if case.axes.gradient_sync == "mpi" and case.device == "cuda":
        return (
            "megengine: gradient_sync 'mpi' would take the gradients through host memory; "
            "on GPUs use 'native'"
        )
    if (
        case.axes.precision == "amp-fp16"
        and case.axes.compiler == "trace"
        and not case.axes.constant_loss_scale
    ):
        return (
            "megengine: a trace would keep the loss scale of its first step; "
            "use compiler 'none' with precision 'amp-fp16', or loss_scale = 128"
        )
    return None


def start(case: "Case", placement: "Placement") -> "Session":
    """Join the process group if there are several ranks, and build model, optimizer and batch."""
    if case.device == "cpu":
        # MegEngine's interpreter thread and its waiting threads keep cores busy beside the one that
        # computes
        host.keep_to_cpus(case.cpus_per_rank, placement.local_rank)
    from dlperf_slurm.worker.frameworks.megengine.session import start_session

    return start_session(case, placement)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that the device or the host ran out of memory."""
    # MegEngine reports an asynchronous error at the next synchronization, with the cause attached
    errors = [one for one in (error, error.__cause__) if one is not None]
    return any(is_memory_error(one, (RuntimeError,), OUT_OF_MEMORY_MESSAGES) for one in errors)
