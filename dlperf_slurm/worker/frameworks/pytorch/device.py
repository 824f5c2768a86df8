"""A rank's device: which one, its clock, and the weights that are copied to it and back."""

from typing import Any, Dict, Iterable, List, Tuple

import torch
from torch import distributed, nn

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
    if case.axes.gradient_sync == "horovod":
        import horovod

        versions["horovod"] = str(horovod.__version__)
    if device.type == "cuda":
        versions["cuda"] = str(torch.version.cuda)
        if torch.backends.cudnn.is_available():
            versions["cudnn"] = str(torch.backends.cudnn.version())
        if distributed.is_nccl_available():
            versions["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    return versions


class CudaEventClock:
    """Boundaries in the device's own time line; a mark queues an event and does not wait."""

    name = "cuda_event"

    def __init__(self, boundaries: int) -> None:
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(boundaries)]
        # torch creates the CUDA event behind the object at its first record.
        for event in self._events:
            event.record()

    def mark(self, index: int) -> None:
        self._events[index].record()

    def read_step_seconds(self) -> List[float]:
        """Resolution is about 0.5 microseconds (CUDA, cudaEventElapsedTime, in milliseconds)."""
        pairs = zip(self._events, self._events[1:])
        return [start.elapsed_time(end) / 1000.0 for start, end in pairs]


def load_weights(model: nn.Module, weights: Iterable[Tuple[str, Any]]) -> None:
    """Copy NumPy arrays into the parameters; their names are those of the state dict."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, values in weights:
            parameters.pop(name).copy_(torch.from_numpy(values))
    if parameters:
        raise ValueError(f"no weights for {', '.join(parameters)}")


def to_numpy(tensor: torch.Tensor) -> Any:
    """A float32 copy in host memory, in the tensor's logical layout."""
    return tensor.detach().to("cpu", torch.float32, copy=True).contiguous().numpy()


def count_parameters(model: nn.Module) -> int:
    """Trainable scalars; `parameters` yields a tied weight once."""
    return sum(parameter.numel() for parameter in model.parameters())
