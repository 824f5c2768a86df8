"""Sample keys in order -> OneFlow's DataLoader over the samples: tensor batches in host memory."""

from typing import Any, Dict, Iterator, Sequence

import oneflow as flow
from oneflow.utils.data import DataLoader

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.datasets.batches import KeyedSamples, collate
from dlperf_slurm.worker.session import Keys

Batch = Dict[str, flow.Tensor]


def make_tensors(batch: Dict[str, Any]) -> Batch:
    """Wrap the NumPy arrays of a batch (name -> array) as tensors that share their memory."""
    return {name: flow.from_numpy(values) for name, values in batch.items()}


def collate_tensors(samples: Sequence[Dict[str, Any]]) -> Batch:
    return make_tensors(collate(samples))


def open_loader(
    case: Case, dataset: Dataset, order: Sequence[Keys], is_pinned: bool
) -> Iterator[Batch]:
    """Yield a batch (name -> tensor in host memory) per list of keys (epoch, index) in `order`.

    With `is_pinned` the memory is page-locked, for copies to a GPU. The worker processes live as
    long as the iterator. They are forked, which OneFlow supports: in them it only copies tensors
    into shared memory.
    """
    loader = DataLoader(
        KeyedSamples(dataset),
        batch_sampler=order,
        num_workers=case.axes.data_workers,
        prefetch_factor=case.axes.prefetch_batches,
        collate_fn=collate_tensors,
        pin_memory=is_pinned,
    )
    return iter(loader)
