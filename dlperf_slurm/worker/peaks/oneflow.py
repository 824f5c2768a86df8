"""OneFlow's matrix product, and a copy that is not optimized away."""

import os
from typing import Any

from dlperf_slurm.worker.peaks import Operation, PeakSettings


def make_product(setting: PeakSettings, size: int) -> Operation:
    flow = load_oneflow(setting)
    matrix = flow.randn(size, size, device=setting.device).to(getattr(flow, setting.type_name))
    return Operation(lambda: flow.matmul(matrix, matrix), wait)


def make_copy(setting: PeakSettings, count: int) -> Operation:
    flow = load_oneflow(setting)
    array = flow.ones(count, dtype=flow.float32, device=setting.device)
    return Operation(lambda: flow.negative(array), wait)


def load_oneflow(setting: PeakSettings) -> Any:
    """Set TF32 by CUDA's environment variable, import OneFlow, set its CPU threads; return it."""
    os.environ["NVIDIA_TF32_OVERRIDE"] = "1" if setting.number_format == "tf32" else "0"
    import oneflow

    oneflow.set_num_threads(setting.cpus)
    return oneflow


def wait(result: Any) -> None:
    """Wait until `result`, and all work before it, is computed, by reading one of its values."""
    result.flatten()[0].item()
