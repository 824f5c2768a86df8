"""Samples in an order -> Grain's pipeline over them: batches as a step reads them, in NumPy.

Imported by Grain's processes, which need no device.
"""

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Sequence, Tuple

import grain
from absl import flags

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets.batches import collate
from dlperf_slurm.worker.frameworks.jax.batches import prepare_batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlperf_slurm.worker.datasets import Dataset

    Batch = Dict[str, NDArray[Any]]

Key = Tuple[int, int]


class Samples:
    """The samples in the order of their (epoch, index): a source of Grain's."""

    def __init__(self, dataset: "Dataset", keys: List[Key]) -> None:
        self._dataset = dataset
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, position: int) -> "Batch":
        epoch, index = self._keys[position]
        return self._dataset.read_sample(index, epoch)


def open_loader(
    case: Case,
    dataset: "Dataset",
    order: Sequence[Sequence[Key]],
    image_layout: str,
    classes: int,
) -> "Iterator[Batch]":
    """One pass over `order`; workers are processes, which Grain spawns and does not fork."""
    keys = [key for batch in order for key in batch]
    prepare = partial(prepare_batch, image_layout=image_layout, classes=classes)
    batches = grain.MapDataset.source(Samples(dataset, keys))
    batches = batches.batch(len(order[0]), batch_fn=collate).map(prepare)
    # Grain asks for its own flags, which only programs of absl have parsed
    flags.FLAGS.mark_as_parsed()
    # no threads in the processes: these are the readers that the case asks for
    reading = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    workers = grain.MultiprocessingOptions(case.axes.data_workers, case.axes.prefetch_batches)
    iterator = iter(batches.to_iter_dataset(reading).mp_prefetch(workers))
    with closing(iterator):
        yield from iterator
