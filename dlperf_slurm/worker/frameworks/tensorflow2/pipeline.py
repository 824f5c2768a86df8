"""Samples in an order -> batches of tensors in host memory, by tf.data; images are NHWC."""

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy
import tensorflow as tf

from dlperf_slurm.contract.case import Case

if TYPE_CHECKING:
    from dlperf_slurm.worker.datasets import Dataset

Key = Tuple[int, int]
Tensors = Dict[str, tf.Tensor]


def arrange(values: Dict[str, Any]) -> Dict[str, Any]:
    """A batch or a sample of `worker.synthetic_batch` with the layout of the model."""
    if "images" not in values:
        return values
    return {**values, "images": numpy.ascontiguousarray(numpy.moveaxis(values["images"], -3, -1))}


def make_tensors(batch: Dict[str, Any]) -> Tensors:
    with tf.device("/device:CPU:0"):
        return {name: tf.constant(values) for name, values in arrange(batch).items()}


class Reader:
    """What tf.data's threads call, and what of it went wrong: TensorFlow keeps only the text."""

    def __init__(self, dataset: "Dataset", first: Key) -> None:
        self._dataset = dataset
        self.error: Optional[Exception] = None
        sample = self._read_sample(*first)
        self.types = {name: tf.as_dtype(values.dtype) for name, values in sample.items()}
        self.shapes = [values.shape for values in sample.values()]

    def read(self, key: Any) -> List[Any]:
        epoch, index = key.tolist()
        try:
            sample = self._read_sample(epoch, index)
        except Exception as error:
            self.error = error
            raise
        return [sample[name] for name in self.types]

    def _read_sample(self, epoch: int, index: int) -> Dict[str, Any]:
        return arrange(self._dataset.read_sample(index, epoch))


def open_dataset(
    case: Case, dataset: "Dataset", order: Sequence[Sequence[Key]]
) -> Iterator[Tensors]:
    """One pass over `order`.

    Readers are threads, the only ones that tf.data has: Python runs in one of them at a time, but
    what NumPy and Pillow do beside it runs in all.
    """
    reader = Reader(dataset, order[0][0])
    with tf.device("/device:CPU:0"):
        batches = iter(make_batches(case, reader, order))
    for _ in range(len(order)):
        yield dict(zip(reader.types, take_batch(batches, reader)))


def take_batch(batches: Iterator[Any], reader: Reader) -> Tuple[tf.Tensor, ...]:
    try:
        batch: Tuple[tf.Tensor, ...] = next(batches)
    except tf.errors.OpError:
        if reader.error is not None:
            raise reader.error from None
        raise
    return batch


def make_batches(case: Case, reader: Reader, order: Sequence[Sequence[Key]]) -> tf.data.Dataset:
    def read(key: tf.Tensor) -> Tuple[tf.Tensor, ...]:
        values = tf.numpy_function(reader.read, [key], list(reader.types.values()))
        for value, shape in zip(values, reader.shapes):
            value.set_shape(shape)
        return tuple(values)

    keys = tf.data.Dataset.from_generator(
        lambda: (key for keys in order for key in keys),
        output_signature=tf.TensorSpec([2], tf.int64),
    )
    options = tf.data.Options()
    # else they are the threads of the step's operations, which may be a single one
    options.threading.private_threadpool_size = case.axes.data_workers
    return (
        keys.map(read, num_parallel_calls=case.axes.data_workers)
        .batch(case.axes.batch_size, drop_remainder=True)
        .prefetch(case.axes.prefetch_batches)
        .with_options(options)
    )
