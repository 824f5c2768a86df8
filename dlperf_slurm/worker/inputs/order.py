"""The files of a data set -> which samples each batch of one rank has, epoch after epoch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets.batches import list_indices, split_for_training
from dlperf_slurm.worker.datasets.description import DataError

if TYPE_CHECKING:
    from dlperf_slurm.worker.frameworks import Keys, Placement


class FileOrder(Sequence):  # type: ignore[type-arg]
    """`batches` batches of `batch_size_per_device` keys (epoch, index), made when asked for.

    In an epoch each sample of the data set is in one batch of one rank at most, in an order of its
    own; as many batches on every rank, and a multiple of `gradient_accumulation`. A list of all
    would be gigabytes for ninety epochs of ImageNet.
    """

    def __init__(
        self, case: Case, placement: "Placement", sample_count: int, batches: int = 0
    ) -> None:
        per_epoch = sample_count // (case.batch_size_per_device * placement.world_size)
        self.batches_per_epoch = (
            per_epoch // case.gradient_accumulation * case.gradient_accumulation
        )
        if not self.batches_per_epoch:
            raise DataError(
                f"{sample_count} training samples are less than one step of "
                f"{case.global_batch_size}; take a smaller batch size, fewer devices or more data"
            )
        self._batches = batches or self.batches_per_epoch * case.training.epochs
        self._case = case
        self._placement = placement
        self._sample_count = sample_count
        self._epoch = -1
        self._epoch_batches: Any = None

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, number: Any) -> "Keys":
        if not 0 <= number < self._batches:
            raise IndexError(number)
        epoch, batch = divmod(number, self.batches_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._epoch_batches = epoch, self._split(epoch)
        return [(epoch, int(index)) for index in self._epoch_batches[batch]]

    def _split(self, epoch: int) -> Any:
        """Samples [batch, batch_size_per_device] of this rank."""
        indices = list_indices(self._sample_count, self._case.seed, epoch, is_shuffled=True)
        return split_for_training(
            indices,
            self._placement.rank,
            self._placement.world_size,
            self._case.batch_size_per_device,
        )
