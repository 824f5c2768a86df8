"""TensorFlow 2: graph mode or XLA, MultiWorkerMirroredStrategy over NCCL or gRPC, or Horovod.

Written for TensorFlow 2.21; Keras is not used. Images are NHWC, TensorFlow's own layout.
"""

import sys
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.worker.frameworks import find_unknown_value

if TYPE_CHECKING:
    from dlperf_slurm.contract import Case
    from dlperf_slurm.worker.frameworks import Placement, Session

MODELS = ("bert", "resnet50")
DEVICES = ("cpu", "cuda")
PRECISIONS = ("fp32", "tf32", "amp-bf16", "amp-fp16")
COMPILERS = ("none", "xla")
MEMORY_FORMATS = ("default",)
DISTRIBUTIONS = ("native", "horovod")
MODES = ("train", "val")

# What errors of other types than ResourceExhaustedError say: XLA, the CUDA driver or NCCL, C++.
OUT_OF_MEMORY_MESSAGES = (
    "RESOURCE_EXHAUSTED",
    "out of memory",
    "OUT_OF_MEMORY",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "std::bad_alloc",
)


def find_unsupported(case: "Case") -> Optional[str]:
    """Why TensorFlow 2 cannot run the case, with what it can run instead; None when it can."""
    if case.memory_format == "channels_last":
        return (
            "tensorflow2 has no memory_format 'channels_last' beside 'default', which is "
            "channels-last already: use that"
        )
    unknown = find_unknown_value(case)
    if unknown:
        return unknown
    if case.precision == "tf32" and case.device != "cuda":
        return (
            "tensorflow2: precision 'tf32' needs device 'cuda'; on the CPU use 'fp32' or 'amp-bf16'"
        )
    return None


def start(case: "Case", placement: "Placement") -> "Session":
    """Join the ranks, if there is more than one, and build all that a step needs."""
    from dlperf_slurm.worker.frameworks.tensorflow2.session import start_session

    return start_session(case, placement)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the device's or the host's memory was too small."""
    if isinstance(error, MemoryError):
        return True
    # Not imported here: `error` may be that TensorFlow itself does not import.
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or not hasattr(tensorflow, "errors"):
        return False
    if isinstance(error, tensorflow.errors.ResourceExhaustedError):
        return True
    return isinstance(error, (tensorflow.errors.OpError, RuntimeError)) and any(
        message in str(error) for message in OUT_OF_MEMORY_MESSAGES
    )
