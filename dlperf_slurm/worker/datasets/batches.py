"""A number of samples -> which of them are in each batch of a rank; and samples -> their batch."""

from collections.abc import Sequence as AbstractSequence
from typing import Any, List, Sequence, Tuple

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.annotations import Array, Arrays
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.datasets.description import DataError
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.session import Keys


def list_indices(count: int, seed: int, epoch: int, is_shuffled: bool) -> Array:
    """Return int64 0 ... count - 1, ascending or shuffled by seed and epoch; same on every rank."""
    import numpy

    if not is_shuffled:
        return numpy.arange(count, dtype=numpy.int64)
    # RandomState's streams are frozen (NEP 19); Generator's may change between NumPy versions.
    return numpy.random.RandomState([seed, epoch]).permutation(count).astype(numpy.int64)


def split_for_validation(
    indices: Array, rank: int, world_size: int, batch_size_per_device: int
) -> List[Array]:
    """Return one rank's batches for validation; over all ranks each sample is in exactly one batch.

    Batches are dealt to the ranks in turn, so that one rank may have one more than another, or
    none. The last batch may be smaller; `pad_batch` fills it up.
    """
    starts = range(0, len(indices), batch_size_per_device)
    batches = [indices[start : start + batch_size_per_device] for start in starts]
    return batches[rank::world_size]


def pad_batch(indices: Array, batch_size: int) -> Tuple[Array, int]:
    """Pad sample indices to `batch_size`, for fixed shapes; also return how many are real.

    The real samples are first; the others repeat them and must not be counted.
    """
    import numpy

    return numpy.resize(indices, batch_size), len(indices)


def collate(samples: Sequence[Arrays]) -> Arrays:
    """Stack samples (name -> array) into a batch: the same names, arrays with a new first axis."""
    import numpy

    return {name: numpy.stack([sample[name] for sample in samples]) for name in samples[0]}


class KeyedSamples:
    """Samples of a data set by (epoch, index), the key that most frameworks' loaders pass on."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __getitem__(self, key: Tuple[int, int]) -> Arrays:
        epoch, index = key
        return self._dataset.read_sample(index, epoch)

    def __len__(self) -> int:
        return len(self._dataset)


def spread_labels(batch: Arrays, classes: int) -> Arrays:
    """Convert integer "labels" to one-hot, float32 [..., classes], unless `classes` is 0."""
    import numpy

    if not classes or batch["labels"].dtype.kind != "i":
        return batch
    return {**batch, "labels": numpy.eye(classes, dtype=numpy.float32)[batch["labels"]]}


def narrow_integers(batch: Arrays) -> Arrays:
    """Convert the integer arrays of a batch to int32; return others unchanged."""
    return {
        name: values.astype("int32") if values.dtype.kind == "i" else values
        for name, values in batch.items()
    }


def count_batches(case: Case) -> int:
    """Return how many batches a rank needs: (warm-up + measured steps) x gradient accumulation."""
    return (case.warmup_steps + case.measured_steps) * case.axes.gradient_accumulation


def order_samples(case: Case) -> List[Keys]:
    """Return the sample keys of each batch of a case without files, as (epoch, index).

    Each batch has all samples of the rank's only batch, in another order.
    """
    size = case.axes.batch_size
    return [
        [(epoch, int(index)) for index in list_indices(size, case.seed, epoch, is_shuffled=True)]
        for epoch in range(count_batches(case))
    ]


class FileOrder(AbstractSequence):  # type: ignore[type-arg]
    """`batches` batches of (epoch, index) keys [batch_size_per_device], computed when accessed.

    In an epoch each sample is in at most one batch of one rank, in a shuffled order. All ranks have
    the same number of batches, a multiple of `gradient_accumulation`. A list of all keys would take
    gigabytes for ninety epochs of ImageNet. With `batches` 0 there are those of all epochs of the
    case's training. Raises DataError if the samples are fewer than one step takes.
    """

    def __init__(
        self, case: Case, rank_info: RankInfo, sample_count: int, batches: int = 0
    ) -> None:
        per_epoch = sample_count // (case.axes.batch_size * rank_info.world_size)
        self.batches_per_epoch = (
            per_epoch // case.axes.gradient_accumulation * case.axes.gradient_accumulation
        )
        if not self.batches_per_epoch:
            raise DataError(
                f"{sample_count} training samples are fewer than the global batch size of "
                f"{case.global_batch_size}; use a smaller batch size, fewer devices or more data"
            )
        self._batches = batches or self.batches_per_epoch * case.training.epochs
        self._case = case
        self._rank_info = rank_info
        self._sample_count = sample_count
        self._epoch = -1
        self._epoch_batches: Any = None

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, number: Any) -> Keys:
        if not 0 <= number < self._batches:
            raise IndexError(number)
        epoch, batch = divmod(number, self.batches_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._epoch_batches = epoch, self._split(epoch)
        return [(epoch, int(index)) for index in self._epoch_batches[batch]]

    def _split(self, epoch: int) -> Any:
        """Return the indices of this rank's samples in an epoch: [batch, batch_size_per_device].

        Global batches follow each other in the order of the epoch, and within each the ranks.
        """
        import numpy

        indices = list_indices(self._sample_count, self._case.seed, epoch, is_shuffled=True)
        shape = (self.batches_per_epoch, self._rank_info.world_size, self._case.axes.batch_size)
        return indices[: numpy.prod(shape)].reshape(shape)[:, self._rank_info.rank]
