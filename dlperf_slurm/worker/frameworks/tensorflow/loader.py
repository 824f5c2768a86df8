"""Samples in an order -> batches of them, by tf.data; images are NHWC."""

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple, TypeVar

import numpy
import tensorflow as tf

from dlperf_slurm.contract.case import Case

if TYPE_CHECKING:
    from dlperf_slurm.worker.datasets import Dataset

Key = Tuple[int, int]
Arrays = Dict[str, Any]
Taken = TypeVar("Taken")


def move_channels_last(values: Arrays) -> Arrays:
    """A batch or a sample of `worker.synthetic_batch` with the layout of the models."""
    if "images" not in values:
        return values
    return {**values, "images": numpy.ascontiguousarray(numpy.moveaxis(values["images"], -3, -1))}


class Reader:
    """What tf.data's threads call, and what of it went wrong: TensorFlow keeps only the text.

    `arrange` makes of a sample what the model takes; of that, `names` are kept.
    """

    def __init__(
        self, dataset: "Dataset", names: Sequence[str], arrange: Callable[[Arrays], Arrays]
    ) -> None:
        self._dataset = dataset
        self._names = names
        self._arrange = arrange
        self.error: Optional[Exception] = None

    def read(self, key: Any) -> List[Any]:
        epoch, index = key.tolist()
        try:
            sample = self._arrange(self._dataset.read_sample(index, epoch))
        except Exception as error:
            self.error = error
            raise
        return [sample[name] for name in self._names]

    def take(self, take: Callable[[], Taken]) -> Taken:
        """What this returns; what it raises is what a read did, if one has."""
        try:
            return take()
        except tf.errors.OpError:
            if self.error is not None:
                raise self.error from None
            raise


def make_batches(
    case: Case,
    reader: Reader,
    keys: tf.data.Dataset,
    types: Sequence[tf.DType],
    shapes: Sequence[Any],
) -> tf.data.Dataset:
    """Batches of the samples with these keys, each an (epoch, index); types and shapes are theirs.

    Readers are threads, the only ones that tf.data has: Python runs in one of them at a time, but
    what NumPy and Pillow do beside it runs in all.
    """

    def read(key: tf.Tensor) -> Tuple[tf.Tensor, ...]:
        values = tf.numpy_function(reader.read, [key], list(types))
        for value, shape in zip(values, shapes):
            value.set_shape(shape)
        return tuple(values)

    options = tf.data.Options()
    # in TensorFlow 1 it had another name
    threading = getattr(options, "threading", None) or options.experimental_threading
    # else they are the threads of the step's operations, which may be a single one
    threading.private_threadpool_size = case.axes.data_workers
    return (
        keys.map(read, num_parallel_calls=case.axes.data_workers)
        .batch(case.axes.batch_size, drop_remainder=True)
        .prefetch(case.axes.prefetch_batches)
        .with_options(options)
    )
