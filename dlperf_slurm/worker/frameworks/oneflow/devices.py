"""A case and the place of its rank -> the device, and what it and OneFlow say of themselves."""

from typing import Dict

import oneflow as flow

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.frameworks import Placement


def choose_device(case: Case, placement: Placement) -> flow.device:
    if case.device == "cpu":
        return flow.device("cpu")
    count = flow.cuda.device_count()
    if count <= placement.local_rank:
        raise RuntimeError(
            f"OneFlow numbers GPUs by the local rank, and rank {placement.rank} with local rank "
            f"{placement.local_rank} sees {count}: let each rank see all GPUs of its node"
        )
    return flow.device("cuda", placement.local_rank)


def read_device_name(device: flow.device) -> str:
    if device.type == "cuda":
        return str(flow.cuda.get_device_name(device))
    return host.read_cpu_name()


def read_versions(device: flow.device) -> Dict[str, str]:
    versions = {"oneflow": str(flow.__version__), "oneflow_commit": str(flow.__git_commit__)}
    if device.type == "cuda":
        versions["cuda"] = str(flow.sysconfig.get_cuda_version())
    return versions
