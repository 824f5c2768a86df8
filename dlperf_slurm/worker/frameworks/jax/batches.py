"""A batch of `worker.synthetic_batch` -> what a step reads of it, still in NumPy; without JAX."""

from typing import TYPE_CHECKING, Any, Dict

import numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Batch = Dict[str, NDArray[Any]]

IMAGE_LAYOUT = "NCHW"


def prepare_batch(batch: "Batch", image_layout: str, classes: int) -> "Batch":
    """In the layout of the case and in 32 bits; labels as probabilities if there are `classes`."""
    prepared = {}
    for name, values in batch.items():
        if name == "images":
            values = numpy.ascontiguousarray(transpose(values, IMAGE_LAYOUT, image_layout))
        elif name == "labels" and classes and values.ndim == 1:
            values = numpy.eye(classes, dtype=numpy.float32)[values]
        is_integer = values.dtype == numpy.int64
        prepared[name] = values.astype(numpy.int32) if is_integer else values
    return prepared


def transpose(values: Any, layout: str, new_layout: str) -> Any:
    """A view of images or kernels in another layout; other arrays as they are."""
    if values.ndim != len(layout) or layout == new_layout:
        return values
    return values.transpose([layout.index(axis) for axis in new_layout])
