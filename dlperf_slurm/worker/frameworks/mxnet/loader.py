"""Sample keys in order -> Gluon's DataLoader over the samples: MXNet arrays in host memory."""

from typing import Any, Dict, Iterator, Sequence

import mxnet as mx
from mxnet.gluon.data import DataLoader

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.datasets.batches import KeyedSamples, collate
from dlperf_slurm.worker.session import Keys

Arrays = Dict[str, mx.nd.NDArray]
# int32: the oneDNN casts that AMP inserts into a hybridized model do not support int64
INPUT_TYPES = {"float32": "float32", "int64": "int32"}


def make_arrays(batch: Dict[str, Any], memory: mx.Context) -> Arrays:
    """Copy a batch into MXNet arrays in `memory`, of host or device; int64 becomes int32."""
    return {
        name: mx.nd.array(values, ctx=memory, dtype=INPUT_TYPES[values.dtype.name])
        for name, values in batch.items()
    }


def collate_shared(samples: Sequence[Dict[str, Any]]) -> Arrays:
    """Stack samples, name -> array each, into a batch in shared memory, in a worker process."""
    return make_arrays(collate(samples), mx.Context("cpu_shared", 0))


def open_loader(case: Case, dataset: Dataset, order: Sequence[Keys]) -> Iterator[Arrays]:
    """Yield a batch, name -> MXNet array in shared host memory, per list of keys (epoch, index).

    The worker processes live as long as the iterator. They are forked, which MXNet supports: it
    stops its threads before a fork and restarts them after it.
    """
    loader = DataLoader(
        KeyedSamples(dataset),
        batch_sampler=order,
        num_workers=case.axes.data_workers,
        # MXNet counts the batches of all workers together
        prefetch=case.axes.prefetch_batches * case.axes.data_workers,
        batchify_fn=collate_shared,
    )
    return iter(loader)
