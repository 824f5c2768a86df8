"""A number of samples -> the batches of each rank in one epoch; and samples -> their batch."""

from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

from dlperf_slurm.worker.datasets.description import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Sample = Dict[str, NDArray[Any]]


def list_indices(count: int, seed: int, epoch: int, is_shuffled: bool) -> "NDArray[Any]":
    """0 ... count - 1 in the order of an epoch, the same on every rank: int64 [count]."""
    import numpy

    if not is_shuffled:
        return numpy.arange(count, dtype=numpy.int64)
    # RandomState's streams are frozen (NEP 19); Generator's may change between NumPy versions.
    return numpy.random.RandomState([seed, epoch]).permutation(count).astype(numpy.int64)


def split_for_training(
    indices: "NDArray[Any]", rank: int, world_size: int, batch_size_per_device: int
) -> "NDArray[Any]":
    """The batches of one rank: [global batches, batch_size_per_device].

    Global batches follow each other in `indices`, and the ranks in each of them. What is left over
    at the end is dropped, so that all batches are whole and all ranks have as many. Raises
    DataError when there is less than one global batch.
    """
    global_batch_size = world_size * batch_size_per_device
    steps = len(indices) // global_batch_size
    if steps == 0:
        raise DataError(
            f"{len(indices)} training samples are less than one global batch of "
            f"{global_batch_size}; take a smaller batch size, fewer devices or more data"
        )
    whole = indices[: steps * global_batch_size]
    return whole.reshape(steps, world_size, batch_size_per_device)[:, rank]


def split_for_validation(
    indices: "NDArray[Any]", rank: int, world_size: int, batch_size_per_device: int
) -> "List[NDArray[Any]]":
    """The batches of one rank, of all of which each sample is in exactly one.

    Batches are dealt to the ranks in turn: one rank may have one more than another, or one may
    have none. The very last one may be smaller than the others; `pad_batch` fills it up.
    """
    starts = range(0, len(indices), batch_size_per_device)
    batches = [indices[start : start + batch_size_per_device] for start in starts]
    return batches[rank::world_size]


def pad_batch(indices: "NDArray[Any]", batch_size: int) -> "Tuple[NDArray[Any], int]":
    """A batch of `batch_size` for a framework of fixed shapes, and how many of it are real.

    Those come first; what follows repeats them, and must not be counted.
    """
    import numpy

    return numpy.resize(indices, batch_size), len(indices)


def collate(samples: "Sequence[Sample]") -> "Sample":
    """The batch of samples, as of `worker.data`: arrays with a new first axis."""
    import numpy

    return {name: numpy.stack([sample[name] for sample in samples]) for name in samples[0]}
