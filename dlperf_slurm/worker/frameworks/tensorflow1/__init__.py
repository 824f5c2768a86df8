"""TensorFlow 1: a static graph in one tf.Session; collectives over gRPC, Horovod, or servers.

Written for TensorFlow 1.15, the last release; Keras is not used. Images are NHWC, TensorFlow's own
layout. On GPUs it was not tried.
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

# What errors of other types than ResourceExhaustedError say: XLA, the CUDA driver or NCCL, cuDNN
# (cudaMalloc failed inside it), C++. "No algorithm worked!" ends a search for a convolution's
# algorithm, which drops why each failed. Our shapes are sound and one algorithm needs no workspace:
# where it ran with a smaller batch, cuDNN now lacks memory of its own, beside a pool that grows
# with the batch. A cuDNN that does not know the GPU says the same, but of any batch.
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

# Left to itself, auto-clustering leaves the CPU out, and compiles a cluster in a later step only.
XLA_FLAGS = "--tf_xla_cpu_global_jit --tf_xla_enable_lazy_compilation=false"


def find_unsupported(case: "Case") -> Optional[str]:
    """Why TensorFlow 1 cannot run the case, with what it can run instead; None when it can.

    It has neither convolutions nor softmax in bfloat16, but for TPUs; TF32 is newer than CUDA 10.
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
    # TensorFlow reads these when it is loaded, or first asked to compile. What a user's own flags
    # would compile is not what the case says.
    os.environ["TF_XLA_FLAGS"] = XLA_FLAGS
    # errors only: it warns of what it deprecates, of CPU instructions, and of big copies
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with warnings.catch_warnings():
        # its own use of NumPy
        warnings.simplefilter("ignore", FutureWarning)
        from dlperf_slurm.worker.frameworks.tensorflow1.session import start_session

    return start_session(case, placement)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that the device or the host ran out of memory."""
    return is_exhausted(error, OUT_OF_MEMORY_MESSAGES)
