"""Sample keys in order -> MegEngine's DataLoader over the samples: batches of NumPy arrays."""

from typing import Any, Dict, Iterator, List, Sequence

import megengine as mge
from megengine.data import Collator, DataLoader, MapSampler
from megengine.data.dataset import Dataset as MegEngineDataset

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.annotations import Arrays
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.datasets.batches import KeyedSamples, collate
from dlperf_slurm.worker.session import Keys


def make_tensors(batch: Dict[str, Any]) -> Dict[str, mge.Tensor]:
    """Copy the NumPy arrays of a batch (name -> array) to the default device as tensors."""
    return {name: mge.Tensor(values) for name, values in batch.items()}


class Samples(KeyedSamples, MegEngineDataset):
    """KeyedSamples as a subclass of MegEngine's Dataset, which its DataLoader requires."""


class Order(MapSampler):
    """Sampler that yields the batches of keys in the given order."""

    def __init__(self, dataset: Samples, order: Sequence[Keys]) -> None:
        super().__init__(dataset, batch_size=len(order[0]), world_size=1, rank=0)
        self._order = order

    def __iter__(self) -> Iterator[Keys]:
        return map(list, self._order)

    def __len__(self) -> int:
        return len(self._order)


class Joined(Collator):
    """Collator that stacks samples into a batch."""

    def apply(self, samples: List[Arrays]) -> Arrays:
        return collate(samples)


class Loader(DataLoader):
    """DataLoader without MegEngine's check of worker memory."""

    def check_memory_rationality(self) -> None:
        """Do nothing: MegEngine's check reads a file that does not exist with cgroup v2."""


def open_loader(case: Case, dataset: Dataset, order: Sequence[Keys]) -> Iterator[Arrays]:
    """Yield a batch (name -> array) per list of keys (epoch, index); workers are two batches ahead.

    MegEngine can only fork its workers. That is safe, because they only read samples and copy
    arrays into Plasma's shared memory, and so need none of the rank's threads.
    """
    samples = Samples(dataset)
    loader = Loader(
        samples, Order(samples, order), collator=Joined(), num_workers=case.axes.data_workers
    )
    return iter(loader)
