"""JAX: jit by XLA, data parallel by shard_map over NCCL or Gloo, mixed precision by casts.

Written for jax 0.10.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import SHARDED, TRAIN
from dlperf_slurm.worker.frameworks import (
    ANY,
    OF_ALL,
    find_lack_of_gpu,
    find_lack_of_images,
    find_unknown_values,
    is_memory_error,
    join_reasons,
    list_builders,
)

if TYPE_CHECKING:
    from dlperf_slurm.contract.case import Case
    from dlperf_slurm.worker.frameworks import Placement
    from dlperf_slurm.worker.session import Session

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

# Substrings of a plain RuntimeError that mean out of memory: XLA's status code for the allocators
# of all devices, C++.
OUT_OF_MEMORY_MESSAGES = ("RESOURCE_EXHAUSTED", "Out of memory", "std::bad_alloc")


def find_unsupported(case: "Case") -> Optional[str]:
    """Return why JAX cannot run the case and what to use instead, or None if it can."""
    if case.axes.compiler == "none":
        compiled = find_unsupported(replace(case, axes=replace(case.axes, compiler="xla")))
        return join_reasons(["jax compiles whatever it trains; use compiler 'xla'", compiled])
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
            "jax: precision 'fp16' has no dynamic loss scale; use loss_scale = 128, or 'amp-fp16'"
        )
    return find_lack_of_images(case)


def start(case: "Case", placement: "Placement") -> "Session":
    """Join the process group if there are several ranks, and build model, optimizer and batch."""
    from dlperf_slurm.worker.frameworks.jax.session import start_session

    return start_session(case, placement)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that the device or the host ran out of memory."""
    return is_memory_error(error, (RuntimeError,), OUT_OF_MEMORY_MESSAGES)
