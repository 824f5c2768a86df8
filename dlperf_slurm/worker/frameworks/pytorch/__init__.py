"""PyTorch: eager or torch.compile, mixed precision by autocast; DDP, FSDP2 or Horovod.

Written for torch 2.5 and newer.
"""

import sys
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import DALI, HOROVOD, SHARDED, TRAIN
from dlperf_slurm.worker.frameworks import (
    ANY,
    OF_ALL,
    find_lack_of_gpu,
    find_lack_of_images,
    find_twice_moved_statistics,
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
    "precision": ("fp32", "tf32", "amp-bf16", "amp-fp16", "bf16", "fp16"),
    "compiler": ("none", "torch.compile"),
    "memory_format": ("default", "channels_last"),
    "gradient_sync": ("native", HOROVOD, SHARDED),
    "activation_checkpointing": (False, True),
    "output_tokens": ANY,
    "data": ("device", "host", "python-queue", "dataset", "zmq", "folder", "dali"),
}

# Substrings of a plain RuntimeError that mean out of memory: from the CUDA driver or NCCL, torch's
# CPU allocator, cuBLAS, cuDNN before and since version 9 (cudaMalloc failed inside it), C++. The
# last one is an assertion of torch's CUDA allocator: to word its out-of-memory error it asks NVML
# for the GPU's memory use, which fails for a GPU that NVML does not list, such as a MIG instance in
# a container (pytorch/pytorch#112377).
OUT_OF_MEMORY_MESSAGES = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "std::bad_alloc",
    "NVML_SUCCESS == DriverAPI::get()->nvmlDeviceGetHandleByPciBusId",
)

# Message when no candidate algorithm for a convolution ran. torch drops the reason of each: either
# no memory for its workspace, or cuDNN has no kernel for this GPU.
NO_ENGINE_MESSAGE = "unable to find an engine to execute this computation"


def find_unsupported(case: "Case") -> Optional[str]:
    """Return why PyTorch cannot run the case and what to use instead, or None if it can."""
    unknown = find_unknown_values(case)
    if unknown:
        return unknown
    if case.axes.precision == "tf32" and case.device != "cuda":
        return find_lack_of_gpu(case, "'fp32' or 'amp-bf16'")
    if (
        case.axes.precision == "fp16"
        and case.axes.mode == TRAIN
        and not case.axes.constant_loss_scale
    ):
        return (
            "pytorch: precision 'fp16' has fp16 gradients, which torch's dynamic loss scaling does "
            "not take; use loss_scale = 128, or 'amp-fp16'"
        )
    if case.axes.data == DALI and load_model(case.model).INPUT != "images":
        return f"pytorch: data 'dali' reads images; use 'folder' for {case.model!r}"
    if case.axes.gradient_sync == SHARDED and case.axes.memory_format != "default":
        return (
            "pytorch: gradient_sync 'sharded' splits parameters in the default memory_format alone"
        )
    return find_twice_moved_statistics(case) or find_lack_of_images(case)


def start(case: "Case", placement: "Placement") -> "Session":
    """Join the process group if there are several ranks, and build model, optimizer and batch."""
    from dlperf_slurm.worker.frameworks.pytorch.session import start_session

    return start_session(case, placement)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that the device or the host ran out of memory."""
    # torch is not imported here, because `error` may be a failure to import torch
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    if torch is not None and NO_ENGINE_MESSAGE in str(error):
        # num_ooms counts every out-of-memory error of torch's allocator, caught ones too
        return bool(torch.cuda.memory_stats().get("num_ooms", 0))
    return is_memory_error(error, (RuntimeError,), OUT_OF_MEMORY_MESSAGES)
