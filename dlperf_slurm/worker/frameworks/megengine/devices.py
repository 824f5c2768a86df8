"""A case and the place of its rank -> the device, and what it says of itself."""

from typing import Dict

import megengine as mge

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.frameworks import Placement


def choose_gpu(placement: Placement) -> int:
    count = mge.get_device_count("gpu")
    if count == 0:
        raise RuntimeError("MegEngine sees no GPU")
    # Under srun --gpus-per-task=1 each rank sees its own GPU only, as number 0.
    return 0 if count == 1 else placement.local_rank


def read_device_name(device: str) -> str:
    if device == "cpu0":
        return host.read_cpu_name()
    return str(mge.device.get_cuda_device_property(int(device[len("gpu") :])).name)


def read_versions(case: Case) -> Dict[str, str]:
    versions = {
        "megengine": str(mge.__version__),
        "megengine_commit": str(mge.version.git_version),
    }
    if case.device == "cuda":
        # as their headers have them: 10010 is 10.1, 7603 is 7.6.3
        versions["cuda"] = str(mge.device.get_cuda_version())
        versions["cudnn"] = str(mge.device.get_cudnn_version())
    return versions
