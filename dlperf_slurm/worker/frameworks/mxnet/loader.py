"""Samples in an order -> Gluon's DataLoader over them: batches of MXNet's arrays in host memory."""

from typing import TYPE_CHECKING, Any, Dict, Iterator, Sequence, Tuple

import mxnet as mx
from mxnet.gluon.data import DataLoader

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets.batches import KeyedSamples, collate

if TYPE_CHECKING:
    from dlperf_slurm.worker.datasets import Dataset

Key = Tuple[int, int]
Arrays = Dict[str, mx.nd.NDArray]
# oneDNN's casts, which AMP places in a hybridized model, do not know int64
INPUT_TYPES = {"float32": "float32", "int64": "int32"}


def make_arrays(batch: Dict[str, Any], memory: mx.Context) -> Arrays:
    """Copies in a host's memory of this kind."""
    return {
        name: mx.nd.array(values, ctx=memory, dtype=INPUT_TYPES[values.dtype.name])
        for name, values in batch.items()
    }


def collate_shared(samples: Sequence[Dict[str, Any]]) -> Arrays:
    """In a process of the loader, into memory that the rank sees too."""
    return make_arrays(collate(samples), mx.Context("cpu_shared", 0))


def open_loader(case: Case, dataset: "Dataset", order: Sequence[Sequence[Key]]) -> Iterator[Arrays]:
    """One pass over `order`; workers are processes that live as long as the iterator.

    They are forked, as MXNet is made for: it stops its threads before and starts anew after that.
    """
    loader = DataLoader(
        KeyedSamples(dataset),
        batch_sampler=order,
        num_workers=case.axes.data_workers,
        # of all workers together
        prefetch=case.axes.prefetch_batches * case.axes.data_workers,
        batchify_fn=collate_shared,
    )
    return iter(loader)
