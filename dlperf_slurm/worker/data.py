"""A model's definition -> one synthetic batch of NumPy arrays, the same in every framework."""

from typing import TYPE_CHECKING, Any, Dict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlperf_slurm.worker.models import Definition

    Batch = Dict[str, NDArray[Any]]


def make_batch(definition: "Definition", batch_size: int, seed: int, rank: int) -> "Batch":
    """The batch of one rank: samples rank * batch_size and following of one endless stream.

    So the joined batch of `world_size` ranks, one after the other, is that of rank 0 with
    `world_size * batch_size`. The same arguments give the same bits in every framework's
    environment; seed and all sample numbers are in 0 ... 2**32 - 1.
    """
    import numpy

    # One sample at a time: the generator's float64 would need twice the images' memory.
    batch: "Batch" = {}
    for index in range(batch_size):
        # RandomState's streams are frozen (NEP 19); Generator's may change between NumPy versions.
        random = numpy.random.RandomState([seed, rank * batch_size + index])
        for name, value in definition.make_sample(random).items():
            if name not in batch:
                batch[name] = numpy.empty((batch_size, *value.shape), value.dtype)
            batch[name][index] = value
    return batch
