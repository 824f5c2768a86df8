"""What the adapters of TensorFlow 1 and 2 share; it is none itself."""

import sys
from typing import Sequence


def is_exhausted(error: BaseException, messages: Sequence[str]) -> bool:
    """Whether memory was too small; `messages` are of errors whose type does not say it."""
    if isinstance(error, MemoryError):
        return True
    # Not imported here: `error` may be that TensorFlow itself does not import.
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or not hasattr(tensorflow, "errors"):
        return False
    if isinstance(error, tensorflow.errors.ResourceExhaustedError):
        return True
    return isinstance(error, (tensorflow.errors.OpError, RuntimeError)) and any(
        message in str(error) for message in messages
    )
