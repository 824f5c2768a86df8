"""Sample keys in order -> batches of NumPy arrays, by tf.data in a graph of its own."""

from functools import partial
from typing import Any, Dict, Iterator, Sequence

import tensorflow as tf

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.datasets.batches import spread_labels
from dlperf_slurm.worker.frameworks.tensorflow.loader import (
    Arrays,
    Reader,
    make_batches,
    move_channels_last,
)
from dlperf_slurm.worker.session import Keys


def arrange(values: Arrays, classes: int) -> Arrays:
    """Convert a batch or sample, name -> NumPy array, to the graph's inputs: images become NHWC.

    With `classes` > 0, labels become probabilities of so many classes.
    """
    return spread_labels(move_channels_last(values), classes)


def open_dataset(
    case: Case,
    dataset: Dataset,
    order: Sequence[Keys],
    batch: Dict[str, tf.Variable],
    classes: int,
    config: tf.compat.v1.ConfigProto,
) -> Iterator[Arrays]:
    """Yield a batch, name -> array, per list of keys (epoch, index) in `order`.

    `batch`, the graph's variables for a batch, gives names, shapes and types; with `classes` > 0,
    labels become class probabilities. `config` is that of the tf.Session that reads.
    """
    reader = Reader(dataset, list(batch), partial(arrange, classes=classes))
    with tf.Graph().as_default(), tf.device("/device:CPU:0"):
        keys = tf.data.Dataset.from_generator(
            lambda: (key for keys in order for key in keys), tf.int64, [2]
        )
        types = [variable.dtype for variable in batch.values()]
        shapes = [variable.shape[1:] for variable in batch.values()]
        iterator = tf.compat.v1.data.make_initializable_iterator(
            make_batches(case, reader, keys, types, shapes)
        )
        following = dict(zip(batch, iterator.get_next()))
        with tf.compat.v1.Session(config=config) as session:
            session.run(iterator.initializer)
            take: Any = session.make_callable(following)
            for _ in range(len(order)):
                yield reader.take(take)
