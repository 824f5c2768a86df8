"""Samples in an order -> Paddle's DataLoader over them: batches of tensors in host memory."""

from typing import TYPE_CHECKING, Any, Dict, Iterator, Sequence, Tuple

import paddle
from paddle.io import DataLoader

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets.batches import KeyedSamples, collate

if TYPE_CHECKING:
    from dlperf_slurm.worker.datasets import Dataset

Key = Tuple[int, int]
Tensors = Dict[str, paddle.Tensor]


def make_tensors(batch: Dict[str, Any], place: Any) -> Tensors:
    """Copies in a place's memory."""
    return {name: paddle.to_tensor(values, place=place) for name, values in batch.items()}


def open_loader(
    case: Case, dataset: "Dataset", order: Sequence[Sequence[Key]], place: Any
) -> Iterator[Tensors]:
    """One pass over `order`; workers are processes that live as long as the iterator.

    Paddle knows no other way than to fork them; all they do with it is to copy arrays into memory
    that the rank sees too.
    """
    loader = DataLoader(
        KeyedSamples(dataset),
        places=[place],
        batch_sampler=order,
        num_workers=case.axes.data_workers,
        prefetch_factor=case.axes.prefetch_batches,
        collate_fn=collate,
        # it would read more batches ahead than those
        use_buffer_reader=False,
    )
    return iter(loader)
