"""PyTorch's matrix product and copy, and the collective of its ranks."""

from typing import Any, Optional

import torch
from torch import distributed

from dlperf_slurm.worker.peaks import Operation, PeakSettings


def make_product(setting: PeakSettings, size: int) -> Operation:
    torch.set_num_threads(setting.cpus)
    torch.backends.cuda.matmul.allow_tf32 = setting.number_format == "tf32"
    kind = getattr(torch, setting.type_name)
    matrix = torch.randn(size, size, dtype=kind, device=setting.device)
    product = torch.empty_like(matrix)
    return Operation(lambda: torch.mm(matrix, matrix, out=product), wait)


def make_copy(setting: PeakSettings, count: int) -> Operation:
    array = torch.ones(count, device=setting.device)
    copy = torch.empty_like(array)
    return Operation(lambda: copy.copy_(array), wait)


def make_all_reduce(device: str, count: int) -> Optional[Operation]:
    """Return an operation, to be timed, that sums `count` float32 numbers over all ranks.

    It is torch.distributed's all-reduce; None if that is not in use.
    """
    if not distributed.is_initialized():
        return None
    array = torch.zeros(count, device=device)

    def start() -> Any:
        distributed.all_reduce(array)
        return array

    return Operation(start, wait)


def wait(result: Any) -> None:
    if result.is_cuda:
        torch.cuda.synchronize()
