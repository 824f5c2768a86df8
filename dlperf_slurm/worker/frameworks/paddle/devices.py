"""A case and the place of its rank -> the device, how it computes, and what it says of itself."""

import os
from typing import Any, Dict

import paddle
from paddle.base import core

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.frameworks import Placement


def choose_device(case: Case, placement: Placement) -> None:
    if case.device == "cpu":
        paddle.set_device("cpu")
        return
    # Under srun --gpus-per-task=1 each rank sees its own GPU only, as number 0.
    index = 0 if paddle.device.cuda.device_count() == 1 else placement.local_rank
    paddle.set_device(f"gpu:{index}")
    os.environ.update(FLAGS_selected_gpus=str(index))


def allow_tf32(is_allowed: bool) -> None:
    """Matrix products and convolutions; Paddle's own default allows it in both."""
    core.set_cublas_switch(is_allowed)
    core.set_cudnn_switch(is_allowed)


def choose_host_memory(case: Case) -> Any:
    """Where batches wait: memory that a GPU reads by itself, or plain one."""
    return paddle.CUDAPinnedPlace() if case.device == "cuda" else paddle.CPUPlace()


def read_device_name(case: Case) -> str:
    if case.device == "cuda":
        return str(paddle.device.cuda.get_device_name())
    return host.read_cpu_name()


def read_versions(case: Case) -> Dict[str, str]:
    versions = {"paddle": str(paddle.__version__), "paddle_commit": str(paddle.version.commit)}
    if case.device == "cuda":
        versions["cuda"] = str(paddle.version.cuda())
        versions["cudnn"] = str(paddle.version.cudnn())
        versions["nccl"] = str(paddle.version.nccl())
    return versions
