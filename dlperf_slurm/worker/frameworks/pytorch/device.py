"""A case -> its device, the device's name and versions, CUDA events, and weights to and from it."""

from typing import Any, Dict, Iterable, List, Tuple

import torch
from torch import distributed, nn

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.horovod import read_horovod_version
from dlperf_slurm.worker.weights import match_weights


def choose_device(case: Case, rank_info: RankInfo) -> torch.device:
    if case.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", rank_info.choose_gpu(torch.cuda.device_count()))
    torch.cuda.set_device(device)
    return device


def allow_tf32(is_allowed: bool) -> None:
    """Allow or forbid TF32 in matrix products and convolutions.

    torch's own default allows TF32 in convolutions only.
    """
    torch.backends.cuda.matmul.allow_tf32 = is_allowed
    torch.backends.cudnn.allow_tf32 = is_allowed


def read_versions(case: Case, device: torch.device) -> Dict[str, str]:
    versions = {"torch": str(torch.__version__), **read_horovod_version(case)}
    if device.type == "cuda":
        versions["cuda"] = str(torch.version.cuda)
        if torch.backends.cudnn.is_available():
            versions["cudnn"] = str(torch.backends.cudnn.version())
        if distributed.is_nccl_available():
            versions["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    return versions


def make_events(count: int) -> List[torch.cuda.Event]:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
    # torch creates the underlying CUDA event at the first record: do that before anything is timed
    for event in events:
        event.record()
    return events


def load_weights(model: nn.Module, weights: Iterable[Tuple[str, Any]]) -> None:
    """Copy (name, array) pairs to the parameters; raises KeyError or ValueError if names differ."""
    with torch.no_grad():
        for _, parameter, values in match_weights(dict(model.named_parameters()), weights):
            parameter.copy_(torch.from_numpy(values))


def to_numpy(tensor: torch.Tensor) -> Any:
    """Return a float32 copy in host memory, in the tensor's logical layout.

    A sharded tensor is all-gathered first, so that all ranks must call this.
    """
    gather = getattr(tensor, "full_tensor", None)
    if gather is not None:
        tensor = gather()
    return tensor.detach().to("cpu", torch.float32, copy=True).contiguous().numpy()
