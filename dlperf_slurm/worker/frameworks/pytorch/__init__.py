"""PyTorch: eager or torch.compile, AMP by autocast, data parallel by DDP or Horovod.

Written for torch 2.5 and newer.
"""

import sys
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.worker.frameworks import find_unknown_value

if TYPE_CHECKING:
    from dlperf_slurm.contract import Case
    from dlperf_slurm.worker.frameworks import Placement, Session

MODELS = ("bert", "resnet50")
DEVICES = ("cpu", "cuda")
PRECISIONS = ("fp32", "tf32", "amp-bf16", "amp-fp16")
COMPILERS = ("none", "torch.compile")
MEMORY_FORMATS = ("default", "channels_last")
DISTRIBUTIONS = ("native", "horovod")
MODES = ("train", "val")

# What a plain RuntimeError says: from the CUDA driver or NCCL, torch's CPU allocator, cuBLAS, C++.
OUT_OF_MEMORY_MESSAGES = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "std::bad_alloc",
)


def find_unsupported(case: "Case") -> Optional[str]:
    """Why PyTorch cannot run the case, with what it can run instead; None when it can."""
    unknown = find_unknown_value(case)
    if unknown:
        return unknown
    if case.precision == "tf32" and case.device != "cuda":
        return "pytorch: precision 'tf32' needs device 'cuda'; on the CPU use 'fp32' or 'amp-bf16'"
    if case.memory_format == "channels_last" and case.model != "resnet50":
        return (
            f"pytorch: memory_format 'channels_last' needs images; use 'default' for {case.model!r}"
        )
    return None


def start(case: "Case", placement: "Placement") -> "Session":
    """Join the ranks, if there is more than one, and build all that a step needs."""
    from dlperf_slurm.worker.frameworks.pytorch.session import start_session

    return start_session(case, placement)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the device's or the host's memory was too small."""
    if isinstance(error, MemoryError):
        return True
    # Not imported here: `error` may be that torch itself does not import.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(
        message in str(error) for message in OUT_OF_MEMORY_MESSAGES
    )
