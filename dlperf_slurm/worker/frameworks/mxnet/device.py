"""A rank -> its device, the device's name and versions, and weights to the device."""

from typing import Any, Dict, Iterable, Tuple

import mxnet as mx
from mxnet.gluon import HybridBlock, Parameter

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.horovod import read_horovod_version
from dlperf_slurm.worker.weights import match_weights

# Gluon's names of parameters of normalizations
CANONICAL_NAMES = {"gamma": "weight", "beta": "bias"}


def choose_device(case: Case, rank_info: RankInfo) -> mx.Context:
    if case.device == "cpu":
        return mx.cpu()
    count = mx.context.num_gpus()
    if count == 0:
        raise RuntimeError(
            "MXNet sees no GPU; its build for GPUs is a package of its own, such as mxnet-cu112"
        )
    return mx.gpu(rank_info.choose_gpu(count))


def read_versions(case: Case) -> Dict[str, str]:
    """Return the version of MXNet, its build's "features", and the version of Horovod if used."""
    features = mx.runtime.Features()
    return {
        "mxnet": str(mx.__version__),
        "features": " ".join(sorted(name for name in features if features.is_enabled(name))),
        **read_horovod_version(case),
    }


def find_parameters(model: HybridBlock) -> Dict[str, Parameter]:
    """Return trainable parameters by canonical name; a tied weight once, under its first name."""
    found: Dict[str, Parameter] = {}
    # the names under which Gluon saves and loads a model's parameters
    for path, parameter in model._collect_params_with_prefix().items():
        module, dot, name = path.rpartition(".")
        # compared by identity: `in` would call Parameter's __eq__
        is_tied = any(parameter is other for other in found.values())
        if parameter.grad_req != "null" and not is_tied:
            found[f"{module}{dot}{CANONICAL_NAMES.get(name, name)}"] = parameter
    return found


def load_weights(parameters: Dict[str, Parameter], weights: Iterable[Tuple[str, Any]]) -> None:
    """Copy `weights`, (name, NumPy array) each, into the parameters of the same names.

    Gluon's layouts are the definition's. Raises KeyError or ValueError if the names differ.
    """
    for _, parameter, values in match_weights(parameters, weights):
        parameter.set_data(mx.nd.array(values))
