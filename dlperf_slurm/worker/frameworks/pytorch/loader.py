"""Sample keys in order -> torch's DataLoader: tensor batches in host memory, copied to a GPU."""

from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence

import torch
from torch.utils.data import DataLoader

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.datasets.batches import KeyedSamples, collate
from dlperf_slurm.worker.session import Keys

Tensors = Dict[str, torch.Tensor]


# array of a batch -> its type on the device, if it has floats
Types = Mapping[str, torch.dtype]


def make_tensors(batch: Dict[str, Any], types: Types) -> Tensors:
    """Convert arrays to tensors, floats to their type in `types`, by name.

    A tensor whose type stays shares the array's memory.
    """
    tensors = {name: torch.from_numpy(values) for name, values in batch.items()}
    return {
        name: tensor.to(types[name]) if tensor.is_floating_point() else tensor
        for name, tensor in tensors.items()
    }


def collate_tensors(samples: Sequence[Dict[str, Any]], types: Types) -> Tensors:
    return make_tensors(collate(samples), types)


def open_loader(
    case: Case, dataset: Dataset, order: Sequence[Keys], types: Types, is_pinned: bool
) -> Iterator[Tensors]:
    """Yield a batch, name -> tensor in host memory, per list of keys (epoch, index) in `order`.

    Floats have the type in `types`. With `is_pinned` the memory is page-locked, for copies to a
    GPU. The worker processes live as long as the iterator.
    """
    loader = DataLoader(
        KeyedSamples(dataset),
        batch_sampler=order,
        num_workers=case.axes.data_workers,
        prefetch_factor=case.axes.prefetch_batches,
        collate_fn=partial(collate_tensors, types=types),
        pin_memory=is_pinned,
    )
    return iter(loader)


class GpuCopies:
    """Copies batches from pinned memory to a GPU, on a stream of its own.

    So a batch is copied while the step before it computes. The GPU keeps two batches, which are
    overwritten in turns. `make_empty` allocates the tensor on the GPU for one in host memory.
    """

    def __init__(self, make_empty: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._make_empty = make_empty
        self._stream = torch.cuda.Stream()
        self._is_overwritable, self._is_copied = torch.cuda.Event(), torch.cuda.Event()
        self._batches: List[Tensors] = [{}, {}]

    def copy(self, staged: Tensors) -> Tensors:
        """Return the batch on the GPU, for the steps after this call; does not wait.

        The next call but one overwrites it, after the steps that were queued before the next call.
        """
        steps = torch.cuda.current_stream()
        self._batches.reverse()
        batch = self._batches[0]
        if {name: (x.shape, x.dtype) for name, x in batch.items()} != {
            name: (x.shape, x.dtype) for name, x in staged.items()
        }:
            batch = self._batches[0] = {name: self._make_empty(x) for name, x in staged.items()}
            # the steps queued so far may use the same memory: copy only after them
            self._is_overwritable.record(steps)
        self._stream.wait_event(self._is_overwritable)
        # the other batch is free after the steps that are queued now
        self._is_overwritable.record(steps)
        with torch.cuda.stream(self._stream):
            for name, values in staged.items():
                batch[name].copy_(values, non_blocking=True)
            self._is_copied.record()
        steps.wait_event(self._is_copied)
        return batch
