"""Sample keys in order -> torch's DataLoader over the samples: tensor batches in host memory."""

from typing import TYPE_CHECKING, Any, Dict, Iterator, Sequence, Tuple

import torch
from torch.utils.data import DataLoader

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets.batches import KeyedSamples, collate

if TYPE_CHECKING:
    from dlperf_slurm.worker.datasets import Dataset

Key = Tuple[int, int]

Tensors = Dict[str, torch.Tensor]


def make_tensors(batch: Dict[str, Any]) -> Tensors:
    """Wrap the arrays as tensors that share their memory."""
    return {name: torch.from_numpy(values) for name, values in batch.items()}


def collate_tensors(samples: Sequence[Dict[str, Any]]) -> Tensors:
    return make_tensors(collate(samples))


def open_loader(
    case: Case, dataset: "Dataset", order: Sequence[Sequence[Key]], is_pinned: bool
) -> Iterator[Tensors]:
    """Yield a batch per list of keys (epoch, index) in `order`.

    The worker processes live as long as the iterator.
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
