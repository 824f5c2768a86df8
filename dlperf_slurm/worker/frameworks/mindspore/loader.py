"""Sample keys in order -> MindSpore's GeneratorDataset over the samples: NumPy batches."""

from typing import Iterator, List, Sequence, Tuple

from mindspore import dataset as pipelines

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.annotations import Array, Arrays
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.datasets.batches import collate
from dlperf_slurm.worker.session import Keys


class Batches:
    """Whole batches by number, so that the parallel readers also collate their samples."""

    def __init__(self, dataset: Dataset, order: Sequence[Keys], names: List[str]) -> None:
        self._dataset = dataset
        self._order = order
        self._names = names

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, number: int) -> Tuple[Array, ...]:
        keys = self._order[number]
        batch = collate([self._dataset.read_sample(index, epoch) for epoch, index in keys])
        return tuple(batch[name] for name in self._names)


def open_loader(case: Case, dataset: Dataset, order: Sequence[Keys]) -> Iterator[Arrays]:
    """Yield a batch, name -> array, for each list of sample keys (epoch, index) in `order`.

    One reader (`data_workers` of the case) is a thread, several readers are processes. These are
    spawned: forked ones would inherit locks that compute threads hold. When no batch is ready,
    MindSpore polls the readers every 0.1 seconds.
    """
    pipelines.config.set_multiprocessing_start_method("spawn")
    # the prefetch size counts batches, of each process and of the pipeline
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
