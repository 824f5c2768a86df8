"""An exception -> whether it means that the device or the host ran out of memory."""

import sys
from typing import Any, Callable, NamedTuple, Tuple, Type

# Of any framework: driver, CUDA runtime, cuBLAS, cuDNN before version 9 and since, NCCL, C++.
# cuBLAS is not initialized if there is no memory for its handle, or if the driver does not suit it.
LIBRARY_MESSAGES = (
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "'out of memory'",
    "Failed to CUDA calloc",
    "std::bad_alloc",
)


class OutOfMemory(NamedTuple):
    """How a framework reports that it ran out of memory, in addition to Python's own errors.

    `messages` are substrings of the text of exceptions of `types`, and of lines of a log. An
    exception of `certain_types` needs no such text. Types are full names, because the framework may
    not be imported. `is_certain` is for exceptions whose type and text are not enough.
    """

    messages: Tuple[str, ...]
    types: Tuple[str, ...] = ("builtins.RuntimeError",)
    certain_types: Tuple[str, ...] = ()
    is_certain: Callable[[BaseException], bool] = lambda error: False


def is_out_of_memory(error: BaseException, signs: OutOfMemory) -> bool:
    """Return whether an exception or its cause means that the device or the host ran out of memory.

    `signs` are those of the framework. MegEngine for one reports an asynchronous error later, with
    the cause attached.
    """
    text = str(error)
    return (
        isinstance(error, (MemoryError, *_find_types(signs.certain_types)))
        or any(message in text for message in LIBRARY_MESSAGES)
        or (
            isinstance(error, _find_types(signs.types))
            and any(message in text for message in signs.messages)
        )
        or signs.is_certain(error)
        or (error.__cause__ is not None and is_out_of_memory(error.__cause__, signs))
    )


def _find_types(names: Tuple[str, ...]) -> Tuple[Type[BaseException], ...]:
    """Return the exception types of these full names; not those of packages not yet imported."""
    found = []
    for name in names:
        package, *attributes = name.split(".")
        owner: Any = sys.modules.get(package)
        for attribute in attributes:
            owner = getattr(owner, attribute, None)
        if owner is not None:
            found.append(owner)
    return tuple(found)
