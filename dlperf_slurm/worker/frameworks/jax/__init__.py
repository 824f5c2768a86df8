"""JAX: jit by XLA, data parallel by shard_map over NCCL or Gloo, mixed precision by casts.

Written for jax 0.10.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.worker.frameworks import find_unknown_values, join_reasons, list_builders
from dlperf_slurm.worker.models import load_model

if TYPE_CHECKING:
    from dlperf_slurm.contract.case import Case
    from dlperf_slurm.worker.frameworks import Placement, Session

MODELS = list_builders(__path__)
DEVICES = ("cpu", "cuda")
PRECISIONS = ("fp32", "tf32", "amp-bf16", "amp-fp16", "bf16", "fp16")
COMPILERS = ("xla",)
MEMORY_FORMATS = ("default", "channels_last")
GRADIENT_SYNCS = ("native",)
MODES = ("train", "infer")
DATA = ("device", "host", "python-queue", "dataset", "zmq", "folder")
OPTIMIZERS = ("default", "sgd", "momentum", "adamw")

# What a plain RuntimeError says: XLA's status code for allocators of all devices, C++.
OUT_OF_MEMORY_MESSAGES = ("RESOURCE_EXHAUSTED", "Out of memory", "std::bad_alloc")


def find_unsupported(case: "Case") -> Optional[str]:
    """Why JAX cannot run the case, with what it can run instead; None when it can."""
    if case.axes.compiler == "none":
        compiled = find_unsupported(replace(case, axes=replace(case.axes, compiler="xla")))
        return join_reasons(["jax compiles whatever it trains; use compiler 'xla'", compiled])
    unknown = find_unknown_values(case)
    if unknown:
        return unknown
    if case.axes.precision == "tf32" and case.device != "cuda":
        return "jax: precision 'tf32' needs device 'cuda'; on the CPU use 'fp32' or 'amp-bf16'"
    if (
        case.axes.precision == "fp16"
        and case.axes.mode == TRAIN
        and not case.axes.constant_loss_scale
    ):
        return (
            "jax: precision 'fp16' has no dynamic loss scale; use loss_scale = 128, or 'amp-fp16'"
        )
    if case.axes.memory_format == "channels_last" and load_model(case.model).INPUT != "images":
        return f"jax: memory_format 'channels_last' needs images; use 'default' for {case.model!r}"
    return None


def start(case: "Case", placement: "Placement") -> "Session":
    """Join the process group, if there is more than one rank, and build all that a step needs."""
    from dlperf_slurm.worker.frameworks.jax.session import start_session

    return start_session(case, placement)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the device's or the host's memory was too small."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and any(message in str(error) for message in OUT_OF_MEMORY_MESSAGES)
    )
