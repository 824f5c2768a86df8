"""PyTorch: eager, torch.compile or CUDA graphs, mixed precision by autocast; DDP, FSDP2 or Horovod.

Written for torch 2.5 and newer.
"""

import sys

from dlperf_slurm.contract.axes import DALI, DYNAMIC, HOROVOD, SHARDED, TRAIN
from dlperf_slurm.worker.frameworks import ANY, OF_ALL, list_builders
from dlperf_slurm.worker.out_of_memory import OutOfMemory
from dlperf_slurm.worker.support import (
    CHANNELS_LAST_WITHOUT_IMAGES,
    CHECKPOINTED_STATISTICS,
    Not,
    Unsupported,
    needs_gpu,
)

# modes of torch.compile that record CUDA graphs; "max-autotune" also times kernels to choose them
GRAPH_MODES = ("reduce-overhead", "max-autotune")

SUPPORTED = {
    **OF_ALL,
    "model": list_builders(__path__),
    "precision": ("fp32", "tf32", "amp-bf16", "amp-fp16", "bf16", "fp16"),
    "compiler": ("none", *GRAPH_MODES, "torch.compile"),
    "memory_format": ("default", "channels_last"),
    "gradient_sync": ("native", HOROVOD, SHARDED),
    "activation_checkpointing": (False, True),
    "output_tokens": ANY,
    "data": ("device", "host", "python-queue", "dataset", "zmq", "folder", "dali"),
}

UNSUPPORTED = (
    needs_gpu("'fp32' or 'amp-bf16'", "tf32"),
    Unsupported(
        {"precision": "fp16", "mode": TRAIN, "loss_scale": DYNAMIC},
        "precision 'fp16' has fp16 gradients, which torch's dynamic loss scaling does not support",
        "use loss_scale = 128, or precision 'amp-fp16'",
    ),
    Unsupported(
        {"data": DALI, "model input": Not("images")},
        "data 'dali' reads only images",
        "use data 'folder' for {model!r}",
    ),
    Unsupported(
        {"gradient_sync": SHARDED, "memory_format": "channels_last"},
        "gradient_sync 'sharded' works only with the default memory_format",
        "use memory_format 'default'",
    ),
    Unsupported(
        {"device": "cpu", "compiler": GRAPH_MODES},
        "compiler {compiler!r} needs device 'cuda': it is torch.compile with CUDA graphs",
        "on the CPU use compiler 'torch.compile'",
    ),
    Unsupported(
        {"mode": TRAIN, "compiler": GRAPH_MODES, "gradient_accumulation": Not(1)},
        "compiler {compiler!r} overwrites the gradients of a batch with those of the next",
        "with gradient_accumulation use compiler 'torch.compile'",
    ),
    Unsupported(
        {"mode": TRAIN, "compiler": GRAPH_MODES, "gradient_sync": SHARDED},
        "compiler {compiler!r} needs weights at fixed addresses, but gradient_sync 'sharded' "
        "gathers the weights into new memory in each step",
        "with gradient_sync 'sharded' use compiler 'torch.compile'",
    ),
    CHECKPOINTED_STATISTICS,
    CHANNELS_LAST_WITHOUT_IMAGES,
)


# Message when no candidate algorithm for a convolution ran. torch drops the reason of each: either
# no memory for its workspace, or cuDNN has no kernel for this GPU.
NO_ENGINE_MESSAGE = "unable to find an engine to execute this computation"


def lacked_workspace(error: BaseException) -> bool:
    """Return whether an error means that a convolution had too little memory for any algorithm."""
    # torch is not imported here, because `error` may be a failure to import torch
    torch = sys.modules.get("torch")
    if torch is None or NO_ENGINE_MESSAGE not in str(error):
        return False
    # num_ooms counts every out-of-memory error of torch's allocator, caught ones too
    return bool(torch.cuda.memory_stats().get("num_ooms", 0))


# Substrings of a plain RuntimeError: from the CUDA driver or NCCL, torch's CPU allocator, and an
# assertion of torch's CUDA allocator. To word its out-of-memory error that asks NVML for the GPU's
# memory use, which fails for a GPU that NVML does not list, such as a MIG instance in a container
# (pytorch/pytorch#112377).
OUT_OF_MEMORY = OutOfMemory(
    (
        "out of memory",
        "can't allocate memory",
        "not enough memory",
        "NVML_SUCCESS == DriverAPI::get()->nvmlDeviceGetHandleByPciBusId",
    ),
    certain_types=("torch.OutOfMemoryError",),
    is_certain=lacked_workspace,
)
