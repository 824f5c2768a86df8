"""MXNet: Gluon, eager or hybridized, data parallel by KVStore's parameter servers or Horovod.

Written for MXNet 1.9.1, the last release; not tested on GPUs.
"""

import os
import sys
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import PARAMETER_SERVER, TRAIN
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
    "precision": ("fp32", "tf32", "amp-bf16", "amp-fp16"),
    "compiler": ("none", "hybridize"),
    "gradient_sync": ("native", "horovod", "parameter_server"),
}

# Substrings of MXNetError messages that mean out of memory: the CPU's and the GPU's allocators,
# cuBLAS, C++.
OUT_OF_MEMORY_MESSAGES = (
    "Failed to allocate CPU Memory",
    "Memory allocation failed",
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "std::bad_alloc",
)


def find_unsupported(case: "Case") -> Optional[str]:
    """Return why MXNet cannot run the case and what to use instead, or None if it can.

    MXNet has no float16 matrix products on the CPU. It has bfloat16 from oneDNN only, so not on
    GPUs. It has channels-last convolutions on GPUs only, where they were not tested.
    """
    unknown = find_unknown_values(case)
    if unknown:
        return unknown
    if case.device == "cpu" and case.axes.precision in ("tf32", "amp-fp16"):
        return find_lack_of_gpu(case, "'fp32' or 'amp-bf16'")
    if case.device == "cuda" and case.axes.precision == "amp-bf16":
        return "mxnet: precision 'amp-bf16' needs device 'cpu'; on GPUs use 'amp-fp16'"
    if case.axes.precision == "tf32" and "attention" in load_model(case.model).LAYERS:
        return (
            "mxnet has precision 'tf32' in convolutions only, not in matrix products; "
            f"use 'fp32' or 'amp-fp16' for {case.model!r}"
        )
    if case.axes.mode == TRAIN and case.axes.gradient_sync == PARAMETER_SERVER:
        return find_unserved(case)
    return None


def find_unserved(case: "Case") -> Optional[str]:
    """Return why parameter servers that update the weights cannot train the case, or None."""
    if case.axes.clip_global_norm:
        return (
            "mxnet: gradient_sync 'parameter_server' updates weights where the norm of all "
            "gradients is not known; with clip_global_norm use 'native' or 'horovod'"
        )
    if case.axes.precision == "amp-fp16" and not case.axes.constant_loss_scale:
        return (
            "mxnet: gradient_sync 'parameter_server' updates weights where a dynamic loss scale is "
            "not known; use loss_scale = 128, or 'native' or 'horovod'"
        )
    return None


def find_lack_of_cpu(case: "Case") -> Optional[str]:
    """Return which CPU feature a supported case needs and this host lacks, or None.

    A login node cannot check this.
    """
    if case.axes.precision == "amp-bf16" and not host.has_cpu_flag("avx512bw"):
        return (
            "mxnet: precision 'amp-bf16' needs CPUs with AVX-512, which these have not; use 'fp32'"
        )
    return None


def start(case: "Case", placement: "Placement") -> "Session":
    """Join the process group if there are several ranks, and build model, optimizer and batch.

    Raises RuntimeError if the CPU lacks a feature that the case needs.
    """
    lack = find_lack_of_cpu(case)
    if lack:
        raise RuntimeError(lack)
    set_environment(case)
    from dlperf_slurm.worker.frameworks.mxnet.session import start_session

    return start_session(case, placement)


def set_environment(case: "Case") -> None:
    """Set the environment variables that MXNet and its libraries read when they are loaded."""
    # threads within an operator, and operators at the same time
    os.environ["OMP_NUM_THREADS"] = str(case.cpus_per_rank)
    os.environ["MXNET_CPU_WORKER_NTHREADS"] = "1"
    # Arrays of this size and more are copied by a team of OpenMP threads that Python's thread
    # leads. Together with the engine's own team there would be more threads than CPUs, and
    # libgomp's threads then sleep at every barrier instead of spinning: 1,300 context switches in a
    # step of ResNet-50, not 14.
    os.environ["MXNET_CPU_PARALLEL_SIZE"] = str(2**31 - 1)
    # applies to cuBLAS and cuDNN, whatever math mode MXNet asks for
    os.environ["NVIDIA_TF32_OVERRIDE"] = "1" if case.axes.precision == "tf32" else "0"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that the device or the host ran out of memory."""
    # MXNet is not imported here, because `error` may be a failure to import MXNet
    mxnet = sys.modules.get("mxnet")
    kinds = () if mxnet is None else (mxnet.MXNetError,)
    return is_memory_error(error, kinds, OUT_OF_MEMORY_MESSAGES)
