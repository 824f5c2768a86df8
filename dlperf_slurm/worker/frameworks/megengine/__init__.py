"""MegEngine: eager or traced, data parallel by its own NCCL collectives or by MPI.

Written for MegEngine 1.13; not tested on GPUs. Its wheel is built for CUDA 10.1, with code for GPUs
up to Turing (sm_75) and PTX for newer ones.
"""

from dlperf_slurm.contract.axes import DYNAMIC, FOLDER, PIPELINE, TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.frameworks import OF_ALL, RankInfo, list_builders
from dlperf_slurm.worker.out_of_memory import OutOfMemory
from dlperf_slurm.worker.support import Not, Unsupported

SUPPORTED = {
    **OF_ALL,
    "model": list_builders(__path__),
    "precision": ("fp32", "amp-fp16"),
    "compiler": ("none", "trace"),
    "gradient_sync": ("native", "mpi"),
}

# Matrix products and convolutions do not support bfloat16; MegEngine's CUDA is older than TF32.
UNSUPPORTED = (
    Unsupported(
        {"precision": "amp-fp16", "device": "cpu", "model layer": "max pooling"},
        "precision 'amp-fp16' needs device 'cuda' for {model!r}: max pooling in float16 is wrong "
        "on the CPU",
        "use precision 'fp32'",
    ),
    Unsupported(
        {"data": (PIPELINE, FOLDER), "prefetch_batches": Not(2)},
        "each process of MegEngine's DataLoader always prefetches 2 batches",
        "use prefetch_batches = 2",
    ),
    Unsupported(
        {"mode": TRAIN, "gradient_sync": "native", "device": "cpu", "world_size": Not(1)},
        "gradient_sync 'native' needs device 'cuda': MegEngine has no collectives on the CPU",
        "on the CPU use gradient_sync 'mpi'",
    ),
    Unsupported(
        {"mode": TRAIN, "gradient_sync": "mpi", "device": "cuda"},
        "gradient_sync 'mpi' would copy the gradients through host memory",
        "on GPUs use gradient_sync 'native'",
    ),
    Unsupported(
        {"mode": TRAIN, "precision": "amp-fp16", "compiler": "trace", "loss_scale": DYNAMIC},
        "compiler 'trace' would keep the loss scale of the first step in all steps",
        "use compiler 'none' with precision 'amp-fp16', or loss_scale = 128",
    ),
)

# Substrings of a RuntimeError: the CPU's and the GPU's allocators.
OUT_OF_MEMORY = OutOfMemory(("failed to malloc", "failed to alloc", "out of memory"))


def prepare(case: Case, rank_info: RankInfo) -> None:
    """Bind this rank to its own CPUs if the case runs on CPUs, before MegEngine is imported."""
    if case.device == "cpu":
        # MegEngine's interpreter thread and its waiting threads keep cores busy beside the one that
        # computes
        host.keep_to_cpus(case.cpus_per_rank, rank_info.local_rank)
