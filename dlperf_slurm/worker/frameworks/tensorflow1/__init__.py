"""TensorFlow 1: a static graph in one tf.Session; collectives over gRPC, Horovod, or servers.

Written for TensorFlow 1.15, the last release; Keras is not used. Images are NHWC, TensorFlow's own
layout. Not tested on GPUs.
"""

import os
import warnings
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.worker.frameworks import OF_ALL, find_unknown_values, list_builders, tensorflow
from dlperf_slurm.worker.frameworks.tensorflow import is_exhausted
from dlperf_slurm.worker.models import load_model

if TYPE_CHECKING:
    from dlperf_slurm.contract.case import Case
    from dlperf_slurm.worker.frameworks import Placement
    from dlperf_slurm.worker.session import Session

SUPPORTED = {
    **OF_ALL,
    "model": list_builders(tensorflow.__path__),
    "precision": ("fp32", "amp-fp16"),
    "compiler": ("none", "xla"),
    "gradient_sync": ("native", "horovod", "parameter_server"),
}

# Substrings of messages that mean out of memory, of errors that are no ResourceExhaustedError: XLA,
# the CUDA driver or NCCL, cuDNN (cudaMalloc failed inside it), C++. "No algorithm worked!" is what
# remains when every algorithm for a convolution failed; TensorFlow drops the reasons. The adapter's
# shapes are valid and one algorithm needs no workspace. So if a smaller batch ran, cuDNN now lacks
# memory of its own, beside a pool that grows with the batch. A cuDNN that does not support the GPU
# raises the same error, but for any batch.
OUT_OF_MEMORY_MESSAGES = (
    "RESOURCE_EXHAUSTED",
    "Resource exhausted",
    "out of memory",
    "OUT_OF_MEMORY",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "No algorithm worked!",
    "std::bad_alloc",
)

# By default, auto-clustering skips the CPU, and compiles a cluster only in a later step.
XLA_FLAGS = "--tf_xla_cpu_global_jit --tf_xla_enable_lazy_compilation=false"


def find_unsupported(case: "Case") -> Optional[str]:
    """Return why TensorFlow 1 cannot run the case and what to use instead, or None if it can.

    It has convolutions and softmax in bfloat16 for TPUs only; TF32 is newer than its CUDA 10.
    """
    if case.axes.memory_format == "channels_last":
        return (
            "tensorflow1 has no memory_format 'channels_last' beside 'default', which is "
            "channels-last already: use that"
        )
    unknown = find_unknown_values(case)
    if unknown:
        return unknown
    if (
        case.axes.compiler == "xla"
        and case.device == "cpu"
        and "convolution" in load_model(case.model).LAYERS
    ):
        return (
            f"tensorflow1: compiler 'xla' takes minutes to compile {case.model!r} for the CPU; "
            "use 'none', or device 'cuda'"
        )
    return None


def start(case: "Case", placement: "Placement") -> "Session":
    """Join the process group if there are several ranks, and build model, optimizer and batch."""
    # TensorFlow reads these when it is imported, or when it first compiles. A user's own flags
    # could compile what the case does not ask for.
    os.environ["TF_XLA_FLAGS"] = XLA_FLAGS
    # errors only: it warns of deprecations, of CPU instructions and of large copies
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with warnings.catch_warnings():
        # raised by TensorFlow's own use of NumPy
        warnings.simplefilter("ignore", FutureWarning)
        from dlperf_slurm.worker.frameworks.tensorflow1.session import start_session

    return start_session(case, placement)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that the device or the host ran out of memory."""
    return is_exhausted(error, OUT_OF_MEMORY_MESSAGES)
