"""JAX: jit by XLA, data parallel by shard_map over NCCL or Gloo, mixed precision by casts.

Written for jax 0.10.
"""

from dlperf_slurm.contract.axes import DYNAMIC, SHARDED, TRAIN
from dlperf_slurm.worker.frameworks import ANY, OF_ALL, list_builders
from dlperf_slurm.worker.out_of_memory import OutOfMemory
from dlperf_slurm.worker.support import CHANNELS_LAST_WITHOUT_IMAGES, Unsupported, needs_gpu

SUPPORTED = {
    **OF_ALL,
    "model": list_builders(__path__),
    "precision": ("fp32", "tf32", "amp-bf16", "amp-fp16", "bf16", "fp16"),
    "compiler": ("xla",),
    "memory_format": ("default", "channels_last"),
    "gradient_sync": ("native", SHARDED),
    "activation_checkpointing": (False, True),
    "output_tokens": ANY,
}

UNSUPPORTED = (
    Unsupported({"compiler": "none"}, "XLA always compiles the steps", "use compiler 'xla'"),
    Unsupported(
        {"compiler": ("reduce-overhead", "max-autotune")},
        "compiler {compiler!r} is a mode of torch.compile; XLA itself uses CUDA graphs and "
        "autotunes kernels",
        "use compiler 'xla'",
    ),
    needs_gpu("'fp32' or 'amp-bf16'", "tf32"),
    Unsupported(
        {"precision": "fp16", "mode": TRAIN, "loss_scale": DYNAMIC},
        "precision 'fp16' does not support a dynamic loss scale",
        "use loss_scale = 128, or precision 'amp-fp16'",
    ),
    CHANNELS_LAST_WITHOUT_IMAGES,
)

# Substrings of a plain RuntimeError: XLA's status code for the allocators of all devices, and what
# it raises if cuBLAS or cuDNN has no memory for its handle.
OUT_OF_MEMORY = OutOfMemory(
    (
        "RESOURCE_EXHAUSTED",
        "Out of memory",
        "out of memory",
        "No BLAS support for stream",
        "without BLAS support",
        "DNN library initialization failed",
    )
)
