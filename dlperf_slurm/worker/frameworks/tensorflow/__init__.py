"""What the adapters of TensorFlow 1 and 2 share; it is none itself."""

import sys
from typing import Sequence

from dlperf_slurm.worker.frameworks import is_memory_error


def is_exhausted(error: BaseException, messages: Sequence[str]) -> bool:
    """Whether memory was too small; `messages` are of errors whose type does not say it."""
    # Not imported here: `error` may be that TensorFlow itself does not import.
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or not hasattr(tensorflow, "errors"):
        return is_memory_error(error, (), ())
    kinds = (tensorflow.errors.OpError, RuntimeError)
    return isinstance(error, tensorflow.errors.ResourceExhaustedError) or is_memory_error(
        error, kinds, messages
    )
