"""A batch of `worker.synthetic_batch` -> what a step reads of it, still in NumPy."""

from typing import Any, Dict

import numpy


def prepare_batch(batch: Dict[str, Any], classes: int) -> Dict[str, Any]:
    """Labels as probabilities if there are `classes`."""
    if not classes or batch["labels"].ndim > 1:
        return batch
    return {**batch, "labels": numpy.eye(classes, dtype=numpy.float32)[batch["labels"]]}
