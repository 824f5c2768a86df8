"""A rank -> its device, the device's name and versions, and weights to and from it."""

from typing import Any, Dict, Iterable, Tuple

import megengine as mge
import numpy
from megengine import Parameter, Tensor

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import models
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.weights import match_weights


def choose_gpu(rank_info: RankInfo) -> int:
    count = mge.get_device_count("gpu")
    if count == 0:
        raise RuntimeError(
            "MegEngine sees no GPU; check the driver, CUDA_VISIBLE_DEVICES and the build"
        )
    return rank_info.choose_gpu(count)


def read_versions(case: Case) -> Dict[str, str]:
    versions = {
        "megengine": str(mge.__version__),
        "megengine_commit": str(mge.version.git_version),
    }
    if case.device == "cuda":
        # encoded as in their headers: 10010 is 10.1, 7603 is 7.6.3
        versions["cuda"] = str(mge.device.get_cuda_version())
        versions["cudnn"] = str(mge.device.get_cudnn_version())
    return versions


def load_weights(parameters: Dict[str, Parameter], weights: Iterable[Tuple[str, Any]]) -> None:
    """Copy (name, array) pairs to the parameters; raises KeyError or ValueError if names differ."""
    for _, parameter, values in match_weights(parameters, weights):
        # parameters of batch normalization are [1, channels, 1, 1]
        parameter[...] = Tensor(values.reshape(parameter.shape))


def read_arrays(
    tensors: Dict[str, Tensor], definitions: Iterable[models.Parameter]
) -> Dict[str, Any]:
    """Return float32 host copies of parameters or gradients, by name, shaped as `definitions`."""
    return {
        name: numpy.array(tensors[name].numpy(), numpy.float32).reshape(shape)
        for name, shape, *_ in definitions
    }
