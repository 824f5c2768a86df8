"""A batch of `worker.synthetic_batch` -> NumPy arrays of MegEngine's types -> its tensors."""

from typing import Any, Dict

import megengine as mge
import numpy


def prepare_batch(batch: Dict[str, Any], classes: int) -> Dict[str, Any]:
    """In 32 bits; labels as probabilities if there are `classes`."""
    prepared = {}
    for name, values in batch.items():
        if name == "labels" and classes and values.ndim == 1:
            values = numpy.eye(classes, dtype=numpy.float32)[values]
        is_integer = values.dtype == numpy.int64
        prepared[name] = values.astype(numpy.int32) if is_integer else values
    return prepared


def make_tensors(batch: Dict[str, Any]) -> Dict[str, mge.Tensor]:
    """Copies on the device."""
    return {name: mge.Tensor(values) for name, values in batch.items()}
