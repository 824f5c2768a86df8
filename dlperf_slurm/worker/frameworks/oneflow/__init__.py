"""OneFlow: eager with DistributedDataParallel, or nn.Graph with global tensors.

Written for OneFlow 0.9.0, the last release; not tested on GPUs.
"""

import os

from dlperf_slurm.contract.axes import DYNAMIC, TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import OF_ALL, RankInfo, list_builders
from dlperf_slurm.worker.out_of_memory import OutOfMemory
from dlperf_slurm.worker.support import Not, Unsupported, needs_gpu

SUPPORTED = {
    **OF_ALL,
    "model": list_builders(__path__),
    "precision": ("fp32", "tf32", "amp-bf16", "amp-fp16"),
    "compiler": ("none", "graph"),
}

UNSUPPORTED = (
    needs_gpu("'fp32'", "tf32", "amp-bf16", "amp-fp16"),
    Unsupported(
        {"mode": TRAIN, "compiler": "graph", "clip_global_norm": True},
        "compiler 'graph' clips each parameter group by its own norm, not by the global norm",
        "with clip_global_norm use compiler 'none'",
    ),
    Unsupported(
        {"mode": TRAIN, "compiler": "graph", "gradient_accumulation": Not(1)},
        "compiler 'graph' needs all micro-batches of a step at once",
        "with gradient_accumulation use compiler 'none'",
    ),
    Unsupported(
        {"mode": TRAIN, "compiler": "graph", "to_accuracy": True},
        "compiler 'graph' compiles the learning rate into the step, so that it cannot change",
        "to train to an accuracy use compiler 'none'",
    ),
    Unsupported(
        {"mode": TRAIN, "compiler": "graph", "model dropout": Not(0), "world_size": Not(1)},
        "compiler 'graph' uses the same dropout mask on all ranks",
        "with several ranks use compiler 'none', or dropout 0",
    ),
    Unsupported(
        {"mode": TRAIN, "compiler": "none", "precision": "amp-fp16", "loss_scale": DYNAMIC},
        "a dynamic loss scale with precision 'amp-fp16' needs compiler 'graph'",
        "with compiler 'none' use loss_scale = 128, or precision 'amp-bf16'",
    ),
)

# Substrings of a RuntimeError or of OneFlow's own exceptions: its allocators, the CUDA driver or
# NCCL. On the CPU OneFlow's thread kills the process (SIGABRT) before an exception reaches Python.
OUT_OF_MEMORY = OutOfMemory(
    ("out of memory", "Out of memory", "allocate failed"),
    types=("builtins.RuntimeError", "oneflow._oneflow_internal.exception.Exception"),
)


def prepare(case: Case, rank_info: RankInfo) -> None:
    """Set the environment variables that OneFlow reads when it is imported."""
    # OneFlow reads all of these variables, and joins the ranks, when it is imported
    os.environ.update(
        MASTER_ADDR=rank_info.master_address,
        MASTER_PORT=str(rank_info.master_port),
        WORLD_SIZE=str(rank_info.world_size),
        # in inference each rank is a world of its own, but rank_info.rank still chooses its data
        RANK=str(rank_info.rank if rank_info.world_size > 1 else 0),
        LOCAL_RANK=str(rank_info.local_rank),
        # On the CPU the thread that launches eager operations also computes them: with separate
        # threads the launching one would keep a second core busy with waiting. A graph has threads
        # of its own.
        ONEFLOW_VM_COMPUTE_ON_WORKER_THREAD=str(
            int(case.device == "cuda" or case.axes.compiler == "graph")
        ),
        # oneDNN's softmax has an error of 3e-6, OneFlow's own one of 1e-7
        ONEFLOW_ENABLE_ONEDNN_OPTS="0",
        # applies to cuBLAS and cuDNN, whatever math mode OneFlow asks for
        NVIDIA_TF32_OVERRIDE="1" if case.axes.precision == "tf32" else "0",
    )
