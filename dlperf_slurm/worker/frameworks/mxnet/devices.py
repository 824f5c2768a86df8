"""A case and the place of its rank -> the device, and what it and MXNet say of themselves."""

from typing import Dict

import mxnet as mx

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.frameworks import Placement


def choose_device(case: Case, placement: Placement) -> mx.Context:
    if case.device == "cpu":
        return mx.cpu()
    count = mx.context.num_gpus()
    if count == 0:
        raise RuntimeError("MXNet sees no GPU; its wheel for GPUs has the name of a CUDA version")
    # Under srun --gpus-per-task=1 each rank sees its own GPU only, as number 0.
    return mx.gpu(0 if count == 1 else placement.local_rank)


def read_device_name(device: mx.Context) -> str:
    if device.device_type == "cpu":
        return host.read_cpu_name()
    return str(device)


def read_versions(case: Case) -> Dict[str, str]:
    """`features` is what MXNet says of its build."""
    features = mx.runtime.Features()
    versions = {
        "mxnet": str(mx.__version__),
        "features": " ".join(sorted(name for name in features if features.is_enabled(name))),
    }
    if case.axes.distribution == "horovod":
        import horovod

        versions["horovod"] = str(horovod.__version__)
    return versions
