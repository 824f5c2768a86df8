"""Samples in an order -> MegEngine's DataLoader over them: batches of NumPy arrays."""

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Sequence, Tuple

import megengine as mge
from megengine.data import Collator, DataLoader, MapSampler
from megengine.data.dataset import Dataset as MegEngineDataset

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets.batches import KeyedSamples, collate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlperf_slurm.worker.datasets import Dataset

    Batch = Dict[str, NDArray[Any]]

Key = Tuple[int, int]


def make_tensors(batch: Dict[str, Any]) -> Dict[str, mge.Tensor]:
    """Copies on the device."""
    return {name: mge.Tensor(values) for name, values in batch.items()}


class Samples(KeyedSamples, MegEngineDataset):
    """Those of all loaders, which MegEngine takes of its own kind only."""


class Order(MapSampler):
    """The batches of keys as they are given."""

    def __init__(self, dataset: Samples, order: Sequence[Sequence[Key]]) -> None:
        super().__init__(dataset, batch_size=len(order[0]), world_size=1, rank=0)
        self._order = order

    def __iter__(self) -> Iterator[List[Key]]:
        return map(list, self._order)

    def __len__(self) -> int:
        return len(self._order)


class Joined(Collator):
    """Samples to a batch."""

    def apply(self, samples: "List[Batch]") -> "Batch":
        return collate(samples)


class Loader(DataLoader):
    """A loader that does not warn of the memory of its processes."""

    def check_memory_rationality(self) -> None:
        """Nothing: MegEngine's own reads a file that hosts with cgroup v2 do not have."""


def open_loader(
    case: Case, dataset: "Dataset", order: Sequence[Sequence[Key]]
) -> "Iterator[Batch]":
    """One pass over `order`; workers are processes, each of them two batches ahead.

    MegEngine knows no other way than to fork them. All they do is to read samples and to copy
    arrays into Plasma's shared memory, for which they need none of the rank's threads.
    """
    samples = Samples(dataset)
    loader = Loader(
        samples, Order(samples, order), collator=Joined(), num_workers=case.axes.data_workers
    )
    return iter(loader)
