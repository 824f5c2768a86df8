"""TensorFlow 2: graph mode or XLA, MultiWorkerMirroredStrategy, Horovod, or parameter servers.

Written for TensorFlow 2.21; Keras is not used. Images are NHWC, TensorFlow's own layout.
"""

from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import PARAMETER_SERVER, TRAIN
from dlperf_slurm.worker.frameworks import (
    OF_ALL,
    find_lack_of_gpu,
    find_unknown_values,
    list_builders,
    tensorflow,
)
from dlperf_slurm.worker.frameworks.tensorflow import is_exhausted

if TYPE_CHECKING:
    from dlperf_slurm.contract.case import Case
    from dlperf_slurm.worker.frameworks import Placement
    from dlperf_slurm.worker.session import Session

SUPPORTED = {
    **OF_ALL,
    "model": list_builders(tensorflow.__path__),
    "precision": ("fp32", "tf32", "amp-bf16", "amp-fp16"),
    "compiler": ("none", "xla"),
    "gradient_sync": ("native", "horovod", "parameter_server"),
}

# Substrings of messages that mean out of memory, of errors that are no ResourceExhaustedError: XLA,
# the CUDA driver or NCCL, cuDNN before and since version 9 (cudaMalloc failed inside it), C++.
OUT_OF_MEMORY_MESSAGES = (
    "RESOURCE_EXHAUSTED",
    "out of memory",
    "OUT_OF_MEMORY",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "std::bad_alloc",
)


def find_unsupported(case: "Case") -> Optional[str]:
    """Return why TensorFlow 2 cannot run the case and what to use instead, or None if it can."""
    if case.axes.memory_format == "channels_last":
        return (
            "tensorflow2 has no memory_format 'channels_last' beside 'default', which is "
            "channels-last already: use that"
        )
    unknown = find_unknown_values(case)
    if unknown:
        return unknown
    if case.axes.precision == "tf32" and case.device != "cuda":
        return find_lack_of_gpu(case, "'fp32' or 'amp-bf16'")
    if (
        case.axes.gradient_sync == PARAMETER_SERVER
        and case.axes.mode == TRAIN
        and case.axes.precision == "amp-fp16"
        and not case.axes.constant_loss_scale
    ):
        return (
            "tensorflow2: gradient_sync 'parameter_server' has no dynamic loss scale; use "
            "loss_scale = 1024, or 'native'"
        )
    return None


def start(case: "Case", placement: "Placement") -> "Session":
    """Join the process group if there are several ranks, and build model, optimizer and batch."""
    from dlperf_slurm.worker.frameworks.tensorflow2.session import start_session

    return start_session(case, placement)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that the device or the host ran out of memory."""
    return is_exhausted(error, OUT_OF_MEMORY_MESSAGES)
