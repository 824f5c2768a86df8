"""Sample keys in order -> Grain's pipeline over the samples: batches of NumPy arrays for a step."""

from contextlib import closing
from functools import partial
from typing import Any, Iterator, Sequence

import numpy

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.annotations import Arrays
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.datasets.batches import (
    KeyedSamples,
    collate,
    narrow_integers,
    spread_labels,
)
from dlperf_slurm.worker.session import Keys

# JAX must not be imported here: Grain's worker processes import this module and need no device.
IMAGE_LAYOUT = "NCHW"


def prepare_batch(batch: Arrays, image_layout: str, classes: int) -> Arrays:
    """Convert a batch, name -> array, to this layout of images ("NHWC") and 32-bit integers.

    If `classes` is not 0, labels become class probabilities [..., classes].
    """
    prepared = narrow_integers(spread_labels(batch, classes))
    if "images" in prepared:
        images = transpose(prepared["images"], IMAGE_LAYOUT, image_layout)
        prepared["images"] = numpy.ascontiguousarray(images)
    return prepared


def transpose(values: Any, layout: str, new_layout: str) -> Any:
    """Return a view of images or kernels in another layout ("NHWC"), and other arrays unchanged."""
    if values.ndim != len(layout) or layout == new_layout:
        return values
    return values.transpose([layout.index(axis) for axis in new_layout])


def open_loader(
    case: Case,
    dataset: Dataset,
    order: Sequence[Keys],
    image_layout: str,
    classes: int,
) -> Iterator[Arrays]:
    """Yield a batch, name -> array, for each list of sample keys (epoch, index) in `order`.

    Batches are as of `prepare_batch`. Grain spawns (not forks) its worker processes.
    """
    # Grain takes seconds to import
    import grain
    from absl import flags

    keys = [key for batch in order for key in batch]
    samples = KeyedSamples(dataset)
    prepare = partial(prepare_batch, image_layout=image_layout, classes=classes)
    batches = grain.MapDataset.source(keys).map(samples.__getitem__)
    batches = batches.batch(len(order[0]), batch_fn=collate).map(prepare)
    # Grain reads its absl flags, which only a program started by absl.app has parsed
    flags.FLAGS.mark_as_parsed()
    # no reader threads in the worker processes: the case sets the number of readers
    reading = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    workers = grain.MultiprocessingOptions(case.axes.data_workers, case.axes.prefetch_batches)
    return read_batches(batches.to_iter_dataset(reading).mp_prefetch(workers))


def read_batches(dataset: Any) -> Iterator[Arrays]:
    with closing(iter(dataset)) as iterator:
        yield from iterator
