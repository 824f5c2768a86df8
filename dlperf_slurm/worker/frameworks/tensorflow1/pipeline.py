"""Samples in an order -> batches of NumPy arrays, by tf.data in a graph of its own.

NumPy's are the arrays that tf.Session takes; images are NHWC.
"""

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy
import tensorflow as tf

from dlperf_slurm.contract.case import Case

if TYPE_CHECKING:
    from dlperf_slurm.worker.datasets import Dataset

Key = Tuple[int, int]
Arrays = Dict[str, Any]


def arrange(values: Arrays, classes: int) -> Arrays:
    """A batch or a sample of `worker.synthetic_batch` as the graph takes it.

    `classes` is for labels that are to be probabilities, and 0 where they are numbers.
    """
    arranged = dict(values)
    if "images" in values:
        arranged["images"] = numpy.ascontiguousarray(numpy.moveaxis(values["images"], -3, -1))
    if classes and values["labels"].dtype.kind == "i":
        arranged["labels"] = numpy.eye(classes, dtype=numpy.float32)[values["labels"]]
    return arranged


class Reader:
    """What tf.data's threads call, and what of it went wrong: TensorFlow keeps only the text."""

    def __init__(self, dataset: "Dataset", names: Sequence[str], classes: int) -> None:
        self._dataset = dataset
        self._names = names
        self._classes = classes
        self.error: Optional[Exception] = None

    def read(self, key: Any) -> List[Any]:
        epoch, index = key.tolist()
        try:
            sample = arrange(self._dataset.read_sample(index, epoch), self._classes)
        except Exception as error:
            self.error = error
            raise
        return [sample[name] for name in self._names]


def open_dataset(
    case: Case,
    dataset: "Dataset",
    order: Sequence[Sequence[Key]],
    batch: Dict[str, tf.Variable],
    classes: int,
    config: tf.compat.v1.ConfigProto,
) -> Iterator[Arrays]:
    """One pass over `order`; `batch` says which shapes and types there are.

    Readers are threads, the only ones that tf.data has: Python runs in one of them at a time, but
    what NumPy and Pillow do beside it runs in all.
    """
    reader = Reader(dataset, list(batch), classes)
    with tf.Graph().as_default(), tf.device("/device:CPU:0"):
        batches = make_batches(case, reader, order, batch)
        iterator = tf.compat.v1.data.make_initializable_iterator(batches)
        following = dict(zip(batch, iterator.get_next()))
        with tf.compat.v1.Session(config=config) as session:
            session.run(iterator.initializer)
            take = session.make_callable(following)
            for _ in range(len(order)):
                yield take_batch(take, reader)


def take_batch(take: Any, reader: Reader) -> Arrays:
    try:
        batch: Arrays = take()
    except tf.errors.OpError:
        if reader.error is not None:
            raise reader.error from None
        raise
    return batch


def make_batches(
    case: Case, reader: Reader, order: Sequence[Sequence[Key]], batch: Dict[str, tf.Variable]
) -> tf.data.Dataset:
    types = [variable.dtype for variable in batch.values()]
    shapes = [variable.shape[1:] for variable in batch.values()]

    def read(key: tf.Tensor) -> Tuple[tf.Tensor, ...]:
        values = tf.numpy_function(reader.read, [key], types)
        for value, shape in zip(values, shapes):
            value.set_shape(shape)
        return tuple(values)

    keys = tf.data.Dataset.from_generator(
        lambda: (key for keys in order for key in keys), tf.int64, [2]
    )
    options = tf.data.Options()
    # else they are the threads of the step's operations, which may be a single one
    options.experimental_threading.private_threadpool_size = case.axes.data_workers
    return (
        keys.map(read, num_parallel_calls=case.axes.data_workers)
        .batch(case.axes.batch_size, drop_remainder=True)
        .prefetch(case.axes.prefetch_batches)
        .with_options(options)
    )
