"""Sample keys in order -> Paddle's DataLoader over the samples: tensor batches in host memory."""

from typing import Any, Dict, Iterator, Sequence

import paddle
from paddle.io import DataLoader

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.datasets.batches import KeyedSamples, collate
from dlperf_slurm.worker.session import Keys

Tensors = Dict[str, paddle.Tensor]


def make_tensors(batch: Dict[str, Any], place: Any) -> Tensors:
    """Copy the NumPy arrays of a batch (name -> array) into tensors in the memory of `place`.

    `place` is Paddle's object for a memory, such as CPUPlace() or CUDAPinnedPlace().
    """
    return {name: paddle.to_tensor(values, place=place) for name, values in batch.items()}


def open_loader(
    case: Case, dataset: Dataset, order: Sequence[Keys], place: Any
) -> Iterator[Tensors]:
    """Yield a batch, name -> tensor, for each list of sample keys (epoch, index) in `order`.

    Tensors are in the memory of `place`, such as CPUPlace() or CUDAPinnedPlace(). The worker
    processes live as long as the iterator. Paddle can only fork its workers. In them it only copies
    arrays into shared memory.
    """
    loader = DataLoader(
        KeyedSamples(dataset),
        places=[place],
        batch_sampler=order,
        num_workers=case.axes.data_workers,
        prefetch_factor=case.axes.prefetch_batches,
        collate_fn=collate,
        # the buffer reader would prefetch more batches than the case asks for
        use_buffer_reader=False,
    )
    return iter(loader)
