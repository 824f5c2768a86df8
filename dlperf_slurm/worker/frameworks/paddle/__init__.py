"""PaddlePaddle: dynamic graph or to_static, DataParallel over NCCL or Gloo, AMP by auto_cast.

Written for Paddle 3.3.
"""

from typing import TYPE_CHECKING, Optional

from dlperf_slurm.worker.frameworks import (
    OF_ALL,
    find_lack_of_gpu,
    find_lack_of_images,
    find_twice_moved_statistics,
    find_unknown_values,
    is_memory_error,
    list_builders,
)

if TYPE_CHECKING:
    from dlperf_slurm.contract.case import Case
    from dlperf_slurm.worker.frameworks import Placement
    from dlperf_slurm.worker.session import Session

SUPPORTED = {
    **OF_ALL,
    "model": list_builders(__path__),
    "precision": ("fp32", "tf32", "amp-bf16", "amp-fp16"),
    "compiler": ("none", "to_static", "cinn"),
    "memory_format": ("default", "channels_last"),
    "activation_checkpointing": (False, True),
}

# Substrings of OSError and RuntimeError messages that mean out of memory: from CUDA, NCCL, cuBLAS,
# cuDNN, an operator in a graph, C++. The allocators of both devices raise MemoryError.
OUT_OF_MEMORY_MESSAGES = (
    "out of memory",
    "Out of memory",
    "ResourceExhausted",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "std::bad_alloc",
)


def find_unsupported(case: "Case") -> Optional[str]:
    """Return why Paddle cannot run the case and what to use instead, or None if it can."""
    unknown = find_unknown_values(case)
    if unknown:
        return unknown
    if case.device != "cuda" and case.axes.precision == "tf32":
        return find_lack_of_gpu(case, "'fp32'")
    if case.device != "cuda" and case.axes.precision != "fp32":
        # on the CPU auto_cast warns that it has no effect, but inside to_static it has, and crashes
        return (
            f"paddle: precision {case.axes.precision!r} needs device 'cuda': Paddle has no such "
            "matrix product or convolution on the CPU; use 'fp32'"
        )
    if case.device != "cuda" and case.axes.compiler == "cinn":
        # to_static would silently use its plain executor
        return (
            "paddle: compiler 'cinn' needs device 'cuda': Paddle for CPUs is built without CINN; "
            "use 'to_static'"
        )
    if case.axes.activation_checkpointing and case.axes.compiler != "none":
        return (
            f"paddle: compiler {case.axes.compiler!r} computes no activations again; "
            "with activation_checkpointing use 'none'"
        )
    return find_twice_moved_statistics(case) or find_lack_of_images(case)


def start(case: "Case", placement: "Placement") -> "Session":
    """Join the process group if there are several ranks, and build model, optimizer and batch."""
    from dlperf_slurm.worker.frameworks.paddle.session import start_session

    return start_session(case, placement)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that the device or the host ran out of memory."""
    return is_memory_error(error, (OSError, RuntimeError), OUT_OF_MEMORY_MESSAGES)
