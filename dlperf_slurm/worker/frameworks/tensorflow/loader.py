"""Sample keys in order -> batches of the samples, by tf.data; images are NHWC."""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, TypeVar

import numpy
import tensorflow as tf

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets import Dataset

Arrays = Dict[str, Any]
Taken = TypeVar("Taken")


def move_channels_last(values: Arrays) -> Arrays:
    """Convert "images" of a batch or sample (name -> array) from NCHW to NHWC, as models need."""
    if "images" not in values:
        return values
    return {**values, "images": numpy.ascontiguousarray(numpy.moveaxis(values["images"], -3, -1))}


class Reader:
    """Reads samples in tf.data's threads, and keeps an error: TensorFlow keeps only its text.

    `arrange` converts a sample to what the model takes, of which `names` are kept.
    """

    def __init__(
        self, dataset: Dataset, names: Sequence[str], arrange: Callable[[Arrays], Arrays]
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
        """Return the result of `take`; if a sample failed, raise its error, not TensorFlow's."""
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
    """Build the tf.data pipeline: keys (epoch, index) -> batches, each a tuple of tensors.

    `types` and `shapes` are those of the arrays of a sample that `reader` returns. An incomplete
    last batch is dropped. Readers are threads, the only workers of tf.data: Python code runs in one
    of them at a time, code of NumPy and Pillow that releases the interpreter lock in all.
    """

    def read(key: tf.Tensor) -> Tuple[tf.Tensor, ...]:
        values = tf.numpy_function(reader.read, [key], list(types))
        for value, shape in zip(values, shapes):
            value.set_shape(shape)
        return tuple(values)

    options = tf.data.Options()
    # TensorFlow 1 has it under another name
    threading = getattr(options, "threading", None) or options.experimental_threading
    # the default pool is that of the step's operations, which may have a single thread
    threading.private_threadpool_size = case.axes.data_workers
    return (
        keys.map(read, num_parallel_calls=case.axes.data_workers)
        .batch(case.axes.batch_size, drop_remainder=True)
        .prefetch(case.axes.prefetch_batches)
        .with_options(options)
    )
