"""What the adapters of TensorFlow 1 and 2 share; it is no adapter itself."""

import sys
from typing import Sequence

from dlperf_slurm.worker.frameworks import is_memory_error


def is_exhausted(error: BaseException, messages: Sequence[str]) -> bool:
    """Return whether `error` means out of memory.

    `messages` are for errors whose type is not ResourceExhaustedError.
    """
    # TensorFlow is not imported here, because `error` may be a failure to import TensorFlow
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or not hasattr(tensorflow, "errors"):
        return is_memory_error(error, (), ())
    kinds = (tensorflow.errors.OpError, RuntimeError)
    return isinstance(error, tensorflow.errors.ResourceExhaustedError) or is_memory_error(
        error, kinds, messages
    )
