"""TensorFlow 1: a static graph in one tf.Session; collectives over gRPC, Horovod, or servers.

Written for TensorFlow 1.15, the last release; Keras is not used. Images are NHWC, TensorFlow's own
layout. Not tested on GPUs.
"""

import os
import warnings
from importlib import import_module

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import OF_ALL, RankInfo, list_builders, tensorflow
from dlperf_slurm.worker.out_of_memory import OutOfMemory
from dlperf_slurm.worker.support import Unsupported

SUPPORTED = {
    **OF_ALL,
    "model": list_builders(tensorflow.__path__),
    "precision": ("fp32", "amp-fp16"),
    "compiler": ("none", "xla"),
    "gradient_sync": ("native", "horovod", "parameter_server"),
}

# Convolutions and softmax in bfloat16 exist for TPUs only; TF32 is newer than CUDA 10.
UNSUPPORTED = (
    tensorflow.CHANNELS_LAST,
    Unsupported(
        {"compiler": "xla", "device": "cpu", "model layer": "convolution"},
        "compiler 'xla' takes minutes to compile {model!r} for the CPU",
        "use compiler 'none', or device 'cuda'",
    ),
)

# Substrings of errors that are no ResourceExhaustedError: XLA, the CUDA driver or NCCL. "No
# algorithm worked!" is what remains when every algorithm for a convolution failed; TensorFlow drops
# the reasons. The adapter's shapes are valid and one algorithm needs no workspace. So if a smaller
# batch ran, cuDNN now lacks memory of its own, beside a pool that grows with the batch. A cuDNN
# that does not support the GPU raises the same error, but for any batch.
OUT_OF_MEMORY = OutOfMemory(
    (
        "RESOURCE_EXHAUSTED",
        "Resource exhausted",
        "out of memory",
        "OUT_OF_MEMORY",
        "No algorithm worked!",
    ),
    types=tensorflow.ERROR_TYPES,
    certain_types=tensorflow.OUT_OF_MEMORY_TYPES,
)


# By default, auto-clustering skips the CPU, and compiles a cluster only in a later step.
XLA_FLAGS = "--tf_xla_cpu_global_jit --tf_xla_enable_lazy_compilation=false"


def prepare(case: Case, rank_info: RankInfo) -> None:
    """Set environment variables that TensorFlow reads at import; import it without its warnings."""
    # TensorFlow reads these when it is imported, or when it first compiles. A user's own flags
    # could compile what the case does not ask for.
    os.environ["TF_XLA_FLAGS"] = XLA_FLAGS
    # errors only: it warns of deprecations, of CPU instructions and of large copies
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with warnings.catch_warnings():
        # raised by TensorFlow's own use of NumPy
        warnings.simplefilter("ignore", FutureWarning)
        import_module(f"{__name__}.session")
