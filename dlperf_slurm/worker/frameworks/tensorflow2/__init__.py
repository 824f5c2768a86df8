"""TensorFlow 2: graph mode or XLA, MultiWorkerMirroredStrategy, Horovod, or parameter servers.

Written for TensorFlow 2.21; Keras is not used. Images are NHWC, TensorFlow's own layout.
"""

from dlperf_slurm.contract.axes import DYNAMIC, PARAMETER_SERVER, TRAIN
from dlperf_slurm.worker.frameworks import OF_ALL, list_builders, tensorflow
from dlperf_slurm.worker.out_of_memory import OutOfMemory
from dlperf_slurm.worker.support import Unsupported, needs_gpu

SUPPORTED = {
    **OF_ALL,
    "model": list_builders(tensorflow.__path__),
    "precision": ("fp32", "tf32", "amp-bf16", "amp-fp16"),
    "compiler": ("none", "xla"),
    "gradient_sync": ("native", "horovod", "parameter_server"),
}

UNSUPPORTED = (
    tensorflow.CHANNELS_LAST,
    needs_gpu("'fp32' or 'amp-bf16'", "tf32"),
    Unsupported(
        {
            "mode": TRAIN,
            "gradient_sync": PARAMETER_SERVER,
            "precision": "amp-fp16",
            "loss_scale": DYNAMIC,
        },
        "gradient_sync 'parameter_server' does not support a dynamic loss scale",
        "use loss_scale = 1024, or gradient_sync 'native'",
    ),
)

# Substrings of errors that are no ResourceExhaustedError: XLA, the CUDA driver or NCCL.
OUT_OF_MEMORY = OutOfMemory(
    ("RESOURCE_EXHAUSTED", "out of memory", "OUT_OF_MEMORY"),
    types=tensorflow.ERROR_TYPES,
    certain_types=tensorflow.OUT_OF_MEMORY_TYPES,
)
