"""Sample keys in order -> batches of tensors in host memory, by tf.data; images are NHWC."""

from typing import Any, Dict, Iterator, Sequence

import tensorflow as tf

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.frameworks.tensorflow.loader import (
    Reader,
    make_batches,
    move_channels_last,
)
from dlperf_slurm.worker.session import Keys

Tensors = Dict[str, tf.Tensor]


def make_tensors(batch: Dict[str, Any]) -> Tensors:
    with tf.device("/device:CPU:0"):
        return {name: tf.constant(values) for name, values in move_channels_last(batch).items()}


def open_dataset(case: Case, dataset: Dataset, order: Sequence[Keys]) -> Iterator[Tensors]:
    """Yield a batch, name -> tensor, for each list of sample keys (epoch, index) in `order`.

    Tensors are in host memory. The first sample gives the shapes and types.
    """
    epoch, index = order[0][0]
    first = move_channels_last(dataset.read_sample(index, epoch))
    reader = Reader(dataset, list(first), move_channels_last)
    types = [tf.as_dtype(values.dtype) for values in first.values()]
    with tf.device("/device:CPU:0"):
        keys = tf.data.Dataset.from_generator(
            lambda: (key for keys in order for key in keys),
            output_signature=tf.TensorSpec([2], tf.int64),
        )
        shapes = [values.shape for values in first.values()]
        batches = iter(make_batches(case, reader, keys, types, shapes))
    for _ in range(len(order)):
        yield dict(zip(first, reader.take(batches.__next__)))
