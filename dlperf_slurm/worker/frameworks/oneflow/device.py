"""A rank -> its device, the device's name and versions, and weights to and from it."""

from typing import Any, Dict, Iterable, Tuple

import oneflow as flow
from oneflow import nn

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.weights import match_weights


def choose_device(case: Case, rank_info: RankInfo) -> flow.device:
    if case.device == "cpu":
        return flow.device("cpu")
    count = flow.cuda.device_count()
    if count <= rank_info.local_rank:
        raise RuntimeError(
            f"OneFlow selects a GPU by the local rank, but rank {rank_info.rank} with local rank "
            f"{rank_info.local_rank} sees {count} GPU(s): let each rank see all GPUs of its node"
        )
    return flow.device("cuda", rank_info.local_rank)


def read_versions(device: flow.device) -> Dict[str, str]:
    versions = {"oneflow": str(flow.__version__), "oneflow_commit": str(flow.__git_commit__)}
    if device.type == "cuda":
        versions["cuda"] = str(flow.sysconfig.get_cuda_version())
    return versions


def load_weights(model: nn.Module, weights: Iterable[Tuple[str, Any]]) -> None:
    """Copy (name, array) pairs to the parameters; raises KeyError or ValueError if names differ."""
    with flow.no_grad():
        for _, parameter, values in match_weights(dict(model.named_parameters()), weights):
            parameter.copy_(flow.from_numpy(values))


def to_numpy(tensor: flow.Tensor) -> Any:
    """Return a float32 copy in host memory, in the tensor's logical layout.

    A global tensor is gathered from all ranks first, so that all ranks must call this.
    """
    tensor = tensor.detach()
    if tensor.is_global:
        tensor = tensor.to_global(sbp=flow.sbp.broadcast).to_local()
    return tensor.to("cpu", flow.float32).numpy().copy()


def copy_value(tensor: flow.Tensor) -> flow.Tensor:
    """Start a copy of the first value of this rank's part of a tensor to host memory: [1]."""
    own = tensor.detach()
    own = own.to_local() if own.is_global else own
    return own.reshape(-1)[:1].clone().to("cpu")


def wait_for_all(tensors: Iterable[flow.Tensor]) -> None:
    """Wait until these tensors are in host memory; later operations may still run."""
    for tensor in tensors:
        tensor.numpy()
