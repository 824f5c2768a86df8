"""A case -> its device, the device's name and versions, and weights to and from it."""

import os
from typing import Any, Dict, Iterable, Set, Tuple

import numpy
import paddle
from paddle import nn
from paddle.base import core

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.weights import match_weights


def choose_device(case: Case, rank_info: RankInfo) -> None:
    if case.device == "cpu":
        paddle.set_device("cpu")
        return
    index = rank_info.choose_gpu(paddle.device.cuda.device_count())
    paddle.set_device(f"gpu:{index}")
    os.environ.update(FLAGS_selected_gpus=str(index))


def allow_tf32(is_allowed: bool) -> None:
    """Allow or forbid TF32 in matrix products and convolutions; Paddle's default allows it."""
    core.set_cublas_switch(is_allowed)
    core.set_cudnn_switch(is_allowed)


def read_versions(case: Case) -> Dict[str, str]:
    versions = {"paddle": str(paddle.__version__), "paddle_commit": str(paddle.version.commit)}
    if case.device == "cuda":
        versions["cuda"] = str(paddle.version.cuda())
        versions["cudnn"] = str(paddle.version.cudnn())
        versions["nccl"] = str(paddle.version.nccl())
    return versions


def list_trained(model: nn.Layer) -> Dict[str, paddle.Tensor]:
    """Return trainable parameters by name, a tied weight once.

    Paddle counts running statistics as parameters; these are left out.
    """
    return {
        name: parameter
        for name, parameter in model.named_parameters()
        if not parameter.stop_gradient
    }


def load_weights(model: nn.Layer, weights: Iterable[Tuple[str, Any]]) -> None:
    """Copy `weights`, (name, NumPy array) each, into the parameters of the same names.

    The arrays have the layouts of the model's `Definition` (`worker.models`); weights of linear
    layers, [out, in] there, are transposed to Paddle's [in, out]. Raises KeyError or ValueError if
    the names differ.
    """
    transposed = find_transposed(model)
    for name, parameter, values in match_weights(list_trained(model), weights):
        parameter.set_value(values.T if name in transposed else values)


def read_arrays(model: nn.Layer, tensors: Dict[str, paddle.Tensor]) -> Dict[str, Any]:
    """Return float32 copies of tensors in host memory, by name, in the definition's layouts.

    `tensors` are parameters, or their gradients, by the parameters' names.
    """
    transposed = find_transposed(model)
    arrays = {}
    for name, tensor in tensors.items():
        values = tensor.numpy()
        values = values.T if name in transposed else values
        arrays[name] = numpy.array(values, numpy.float32, order="C")
    return arrays


def find_transposed(model: nn.Layer) -> Set[str]:
    """Return the names of the weights of linear layers, which are [in, out] in Paddle."""
    return {
        f"{name}.weight" for name, layer in model.named_sublayers() if isinstance(layer, nn.Linear)
    }
