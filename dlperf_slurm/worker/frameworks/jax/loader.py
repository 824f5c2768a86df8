"""Samples in an order -> Grain's pipeline over them: batches as a step reads them, in NumPy."""

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Dict, Iterator, Sequence, Tuple

import numpy

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets.batches import (
    KeyedSamples,
    collate,
    narrow_integers,
    spread_labels,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlperf_slurm.worker.datasets import Dataset

    Batch = Dict[str, NDArray[Any]]

# No JAX here: Grain's processes import this, and need no device.
IMAGE_LAYOUT = "NCHW"

Key = Tuple[int, int]


def prepare_batch(batch: "Batch", image_layout: str, classes: int) -> "Batch":
    """In the layout of the case and in 32 bits; labels as probabilities if there are `classes`."""
    prepared = narrow_integers(spread_labels(batch, classes))
    if "images" in prepared:
        images = transpose(prepared["images"], IMAGE_LAYOUT, image_layout)
        prepared["images"] = numpy.ascontiguousarray(images)
    return prepared


def transpose(values: Any, layout: str, new_layout: str) -> Any:
    """A view of images or kernels in another layout; other arrays as they are."""
    if values.ndim != len(layout) or layout == new_layout:
        return values
    return values.transpose([layout.index(axis) for axis in new_layout])


def open_loader(
    case: Case,
    dataset: "Dataset",
    order: Sequence[Sequence[Key]],
    image_layout: str,
    classes: int,
) -> "Iterator[Batch]":
    """One pass over `order`; workers are processes, which Grain spawns and does not fork."""
    # Grain takes seconds to import
    import grain
    from absl import flags

    keys = [key for batch in order for key in batch]
    samples = KeyedSamples(dataset)
    prepare = partial(prepare_batch, image_layout=image_layout, classes=classes)
    batches = grain.MapDataset.source(keys).map(samples.__getitem__)
    batches = batches.batch(len(order[0]), batch_fn=collate).map(prepare)
    # Grain asks for its own flags, which only programs of absl have parsed
    flags.FLAGS.mark_as_parsed()
    # no threads in the processes: these are the readers that the case asks for
    reading = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    workers = grain.MultiprocessingOptions(case.axes.data_workers, case.axes.prefetch_batches)
    return read_batches(batches.to_iter_dataset(reading).mp_prefetch(workers))


def read_batches(dataset: Any) -> "Iterator[Batch]":
    with closing(iter(dataset)) as iterator:
        yield from iterator
