"""MXNet's matrix product and copy."""

import os
from typing import Any

from dlperf_slurm.worker.peaks import Operation, PeakSettings


def make_product(setting: PeakSettings, size: int) -> Operation:
    """Return an operation, to be timed, that multiplies a random [size, size] matrix by itself.

    Raises ValueError for bf16, in which MXNet multiplies matrices only inside a network.
    """
    if setting.number_format == "bf16":
        raise ValueError(f"MXNet has no matrix product for {setting.number_format}")
    mx = load_mxnet(setting)
    kind = setting.type_name
    matrix = mx.nd.random.normal(shape=(size, size), ctx=find_context(setting)).astype(kind)
    product = mx.nd.empty((size, size), ctx=find_context(setting), dtype=kind)
    return Operation(lambda: mx.nd.dot(matrix, matrix, out=product), wait)


def make_copy(setting: PeakSettings, count: int) -> Operation:
    mx = load_mxnet(setting)
    array = mx.nd.ones(count, ctx=find_context(setting))
    copy = mx.nd.empty(count, ctx=find_context(setting))
    return Operation(lambda: mx.nd.negative(array, out=copy), wait)


def load_mxnet(setting: PeakSettings) -> Any:
    """Import MXNet with the setting's CPU threads and TF32, which it reads at import; return it."""
    os.environ["OMP_NUM_THREADS"] = str(setting.cpus)
    os.environ["MXNET_CPU_WORKER_NTHREADS"] = "1"
    os.environ["NVIDIA_TF32_OVERRIDE"] = "1" if setting.number_format == "tf32" else "0"
    import mxnet

    return mxnet


def find_context(setting: PeakSettings) -> Any:
    mx = load_mxnet(setting)
    return mx.gpu(0) if setting.device == "cuda" else mx.cpu()


def wait(result: Any) -> None:
    result.wait_to_read()
