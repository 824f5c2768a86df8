"""PaddlePaddle's matrix product, and a copy that is not optimized away."""

import os
from typing import Any

from dlperf_slurm.worker.peaks import Operation, PeakSettings


def make_product(setting: PeakSettings, size: int) -> Operation:
    paddle = load_paddle(setting)
    matrix = paddle.randn([size, size]).astype(setting.type_name)
    return Operation(lambda: paddle.matmul(matrix, matrix), wait)


def make_copy(setting: PeakSettings, count: int) -> Operation:
    paddle = load_paddle(setting)
    array = paddle.ones([count], "float32")
    # in place: new memory would cost a page fault per page
    return Operation(lambda: array.scale_(-1.0), wait)


def load_paddle(setting: PeakSettings) -> Any:
    """Set TF32 by CUDA's environment variable, import Paddle, set device and threads; return it."""
    os.environ["NVIDIA_TF32_OVERRIDE"] = "1" if setting.number_format == "tf32" else "0"
    import paddle
    from paddle.base import core

    core.set_num_threads(setting.cpus)
    paddle.set_device("gpu:0" if setting.device == "cuda" else "cpu")
    return paddle


def wait(result: Any) -> None:
    """Wait until `result`, and all work before it, is computed, by reading one of its values."""
    float(result.flatten()[0])
