"""A case and the place of its rank -> the device, how it computes, and what it says of itself."""

from typing import Dict

import torch
from torch import distributed

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.frameworks import Placement


def choose_device(case: Case, placement: Placement) -> torch.device:
    if case.device == "cpu":
        return torch.device("cpu")
    # Under srun --gpus-per-task=1 each rank sees its own GPU only, as number 0.
    index = 0 if torch.cuda.device_count() == 1 else placement.local_rank
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device


def allow_tf32(is_allowed: bool) -> None:
    """Matrix products and convolutions; torch's own default allows it in convolutions only."""
    torch.backends.cuda.matmul.allow_tf32 = is_allowed
    torch.backends.cudnn.allow_tf32 = is_allowed


def read_device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return host.read_cpu_name()


def read_versions(case: Case, device: torch.device) -> Dict[str, str]:
    versions = {"torch": str(torch.__version__)}
    if case.axes.distribution == "horovod":
        import horovod

        versions["horovod"] = str(horovod.__version__)
    if device.type == "cuda":
        versions["cuda"] = str(torch.version.cuda)
        if torch.backends.cudnn.is_available():
            versions["cudnn"] = str(torch.backends.cudnn.version())
        if distributed.is_nccl_available():
            versions["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    return versions
