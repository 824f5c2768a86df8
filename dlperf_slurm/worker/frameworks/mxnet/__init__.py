"""MXNet: Gluon, eager or hybridized, data parallel by KVStore's parameter servers or Horovod.

Written for MXNet 1.9.1, the last release; not tested on GPUs.
"""

import os
from typing import Optional

from dlperf_slurm.contract.axes import DYNAMIC, PARAMETER_SERVER, TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.frameworks import OF_ALL, RankInfo, list_builders
from dlperf_slurm.worker.out_of_memory import OutOfMemory
from dlperf_slurm.worker.support import Unsupported, needs_gpu

SUPPORTED = {
    **OF_ALL,
    "model": list_builders(__path__),
    "precision": ("fp32", "tf32", "amp-bf16", "amp-fp16"),
    "compiler": ("none", "hybridize"),
    "gradient_sync": ("native", "horovod", "parameter_server"),
}

# MXNet has no float16 matrix products on the CPU. It has bfloat16 from oneDNN only, so not on GPUs.
# It has channels-last convolutions on GPUs only, where they were not tested.
UNSUPPORTED = (
    needs_gpu("'fp32' or 'amp-bf16'", "tf32", "amp-fp16"),
    Unsupported(
        {"device": "cuda", "precision": "amp-bf16"},
        "precision 'amp-bf16' needs device 'cpu'",
        "on GPUs use precision 'amp-fp16'",
    ),
    Unsupported(
        {"precision": "tf32", "model layer": "attention"},
        "MXNet supports precision 'tf32' in convolutions only, not in matrix products",
        "use precision 'fp32' or 'amp-fp16' for {model!r}",
    ),
    Unsupported(
        {"mode": TRAIN, "gradient_sync": PARAMETER_SERVER, "clip_global_norm": True},
        "gradient_sync 'parameter_server' does not support clip_global_norm: its servers do not "
        "know the norm of all gradients",
        "use gradient_sync 'native' or 'horovod'",
    ),
    Unsupported(
        {
            "mode": TRAIN,
            "gradient_sync": PARAMETER_SERVER,
            "precision": "amp-fp16",
            "loss_scale": DYNAMIC,
        },
        "gradient_sync 'parameter_server' does not support a dynamic loss scale",
        "use loss_scale = 128, or gradient_sync 'native' or 'horovod'",
    ),
)

# Substrings of an MXNetError: the CPU's and the GPU's allocators.
OUT_OF_MEMORY = OutOfMemory(
    ("Failed to allocate CPU Memory", "Memory allocation failed", "out of memory"),
    types=("mxnet.MXNetError",),
)


def find_lack_of_cpu(case: Case) -> Optional[str]:
    """Return a message if the case needs a CPU feature that this host lacks, or None.

    A login node cannot check this.
    """
    if case.axes.precision == "amp-bf16" and not host.has_cpu_flag("avx512bw"):
        return (
            "mxnet: precision 'amp-bf16' needs AVX-512 (avx512bw), which the CPUs of this node "
            "lack; use precision 'fp32'"
        )
    return None


def prepare(case: Case, rank_info: RankInfo) -> None:
    """Set the environment variables that MXNet reads when it is imported.

    Raises RuntimeError if the CPU lacks a feature that the case needs.
    """
    lack = find_lack_of_cpu(case)
    if lack:
        raise RuntimeError(lack)
    set_environment(case)


def set_environment(case: Case) -> None:
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
