"""OneFlow: eager with DistributedDataParallel, or nn.Graph with global tensors.

Written for OneFlow 0.9.0, the last release; not tested on GPUs.
"""

import os
import sys
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import TRAIN
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
    "compiler": ("none", "graph"),
}

# Substrings of RuntimeError and OneFlow's own exceptions that mean out of memory: its allocators,
# the CUDA driver or NCCL, cuBLAS, C++. On the CPU OneFlow's thread kills the process (SIGABRT)
# before an exception reaches Python.
OUT_OF_MEMORY_MESSAGES = (
    "out of memory",
    "Out of memory",
    "allocate failed",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "std::bad_alloc",
)


def find_unsupported(case: "Case") -> Optional[str]:
    """Return why OneFlow cannot run the case and what to use instead, or None if it can."""
    unknown = find_unknown_values(case)
    if unknown:
        return unknown
    if case.axes.precision != "fp32" and case.device == "cpu":
        return find_lack_of_gpu(case, "'fp32'")
    return find_untrainable(case) if case.axes.mode == TRAIN else None


def find_untrainable(case: "Case") -> Optional[str]:
    """Return why OneFlow can infer but not train the case, or None."""
    if case.axes.compiler == "graph":
        return find_ungraphable(case)
    if case.axes.precision == "amp-fp16" and not case.axes.constant_loss_scale:
        return (
            "oneflow: precision 'amp-fp16' needs compiler 'graph', which alone has a dynamic loss "
            "scale; with 'none' use loss_scale = 128, or 'amp-bf16'"
        )
    return None


def find_ungraphable(case: "Case") -> Optional[str]:
    """Return why compiler 'graph' cannot train the case, or None."""
    if case.axes.clip_global_norm:
        return (
            "oneflow: compiler 'graph' clips each group of parameters by a norm of its own; "
            "with clip_global_norm use 'none'"
        )
    if case.axes.gradient_accumulation > 1:
        return (
            "oneflow: compiler 'graph' takes the batches of a step only all at once; "
            "with gradient_accumulation use 'none'"
        )
    if case.is_to_accuracy:
        return (
            "oneflow: compiler 'graph' has the learning rate compiled in; "
            "to train to an accuracy use 'none'"
        )
    definition = load_model(case.model).Definition(**case.model_parameters)
    if getattr(definition, "dropout", 0.0) and case.world_size > 1:
        return (
            "oneflow: compiler 'graph' draws the same dropout on all ranks; with several ranks "
            "use 'none', or dropout 0"
        )
    return None


def start(case: "Case", placement: "Placement") -> "Session":
    """Join the process group if there are several ranks, and build model, optimizer and batch."""
    # OneFlow reads all of these variables, and joins the ranks, when it is imported
    os.environ.update(
        MASTER_ADDR=placement.master_address,
        MASTER_PORT=str(placement.master_port),
        WORLD_SIZE=str(placement.world_size),
        # a single rank may have the data of another one
        RANK=str(placement.rank if placement.world_size > 1 else 0),
        LOCAL_RANK=str(placement.local_rank),
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
    from dlperf_slurm.worker.frameworks.oneflow.session import start_session

    return start_session(case, placement)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that the device or the host ran out of memory."""
    # OneFlow is not imported here, because `error` may be a failure to import OneFlow
    flow = sys.modules.get("oneflow")
    kinds = () if flow is None else (RuntimeError, flow._oneflow_internal.exception.Exception)
    return is_memory_error(error, kinds, OUT_OF_MEMORY_MESSAGES)
