"""Samples in an order -> MindSpore's GeneratorDataset over them: batches of NumPy arrays."""

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Sequence, Tuple

from mindspore import dataset as pipelines

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets.batches import collate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlperf_slurm.worker.datasets import Dataset

Key = Tuple[int, int]


class Batches:
    """Whole batches by their number, so that the readers join their samples too."""

    def __init__(
        self, dataset: "Dataset", order: Sequence[Sequence[Key]], names: List[str]
    ) -> None:
        self._dataset = dataset
        self._order = order
        self._names = names

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, number: int) -> "Tuple[NDArray[Any], ...]":
        keys = self._order[number]
        batch = collate([self._dataset.read_sample(index, epoch) for epoch, index in keys])
        return tuple(batch[name] for name in self._names)


def open_loader(
    case: Case, dataset: "Dataset", order: Sequence[Sequence[Key]]
) -> "Iterator[Dict[str, NDArray[Any]]]":
    """One pass over `order`. One reader is a thread of the pipeline, several are processes.

    These are spawned: a fork would have locks of the threads that compute. MindSpore looks every
    0.1 seconds whether they have a batch, when it finds none.
    """
    pipelines.config.set_multiprocessing_start_method("spawn")
    # of batches: of each process, and of the pipeline
    pipelines.config.set_prefetch_size(case.axes.prefetch_batches)
    (epoch, index), *_ = order[0]
    names = list(dataset.read_sample(index, epoch))
    batches = pipelines.GeneratorDataset(
        Batches(dataset, order, names),
        names,
        num_parallel_workers=case.axes.data_workers,
        shuffle=False,
    )
    return iter(batches.create_dict_iterator(num_epochs=1, output_numpy=True))
