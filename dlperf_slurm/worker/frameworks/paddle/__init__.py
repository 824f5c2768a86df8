"""PaddlePaddle: dynamic graph or to_static, DataParallel over NCCL or Gloo, AMP by auto_cast.

Written for Paddle 3.3.
"""

from dlperf_slurm.worker.frameworks import OF_ALL, list_builders
from dlperf_slurm.worker.out_of_memory import OutOfMemory
from dlperf_slurm.worker.support import (
    CHANNELS_LAST_WITHOUT_IMAGES,
    CHECKPOINTED_STATISTICS,
    Unsupported,
    needs_gpu,
)

SUPPORTED = {
    **OF_ALL,
    "model": list_builders(__path__),
    "precision": ("fp32", "tf32", "amp-bf16", "amp-fp16"),
    "compiler": ("none", "to_static", "cinn"),
    "memory_format": ("default", "channels_last"),
    "activation_checkpointing": (False, True),
}

UNSUPPORTED = (
    needs_gpu("'fp32'", "tf32"),
    # on the CPU auto_cast warns that it has no effect, but inside to_static it has, and crashes
    Unsupported(
        {"device": "cpu", "precision": ("amp-bf16", "amp-fp16")},
        "precision {precision!r} needs device 'cuda': on the CPU, Paddle has no matrix product or "
        "convolution of this precision",
        "use precision 'fp32'",
    ),
    # to_static would silently use its plain executor
    Unsupported(
        {"device": "cpu", "compiler": "cinn"},
        "compiler 'cinn' needs device 'cuda': Paddle for CPUs is built without CINN",
        "use compiler 'to_static'",
    ),
    Unsupported(
        {"activation_checkpointing": True, "compiler": ("to_static", "cinn")},
        "compiler {compiler!r} cannot recompute activations",
        "with activation_checkpointing use compiler 'none'",
    ),
    CHECKPOINTED_STATISTICS,
    CHANNELS_LAST_WITHOUT_IMAGES,
)

# Substrings of an OSError or RuntimeError: from CUDA, NCCL, an operator in a graph. The allocators
# of both devices raise MemoryError.
OUT_OF_MEMORY = OutOfMemory(
    ("out of memory", "Out of memory", "ResourceExhausted"),
    types=("builtins.OSError", "builtins.RuntimeError"),
)
