"""What the adapters of TensorFlow 1 and 2 share; it is no adapter itself."""

from dlperf_slurm.worker.support import Unsupported

CHANNELS_LAST = Unsupported(
    {"memory_format": "channels_last"},
    "memory_format 'default' is channels-last already",
    "use memory_format 'default'",
)
# exceptions that may quote a library's message, and the one that always means out of memory
ERROR_TYPES = ("builtins.RuntimeError", "tensorflow.errors.OpError")
OUT_OF_MEMORY_TYPES = ("tensorflow.errors.ResourceExhaustedError",)
