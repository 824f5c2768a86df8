"""A case -> batches of real files, read and augmented by the framework's pipeline or by DALI."""

from itertools import islice
from typing import TYPE_CHECKING, Any, Iterator

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets import open_dataset
from dlperf_slurm.worker.datasets.batches import FileOrder, count_batches
from dlperf_slurm.worker.datasets.description import TRAIN_SPLIT

if TYPE_CHECKING:
    from dlperf_slurm.worker.frameworks import Placement, Session


def open_folder(case: Case, placement: "Placement", session: "Session") -> Iterator[Any]:
    """Files that the framework's own input pipeline reads.

    Raises DataError for files that cannot be used, and for fewer than one step takes.
    """
    dataset = open_dataset(case, TRAIN_SPLIT)
    order = FileOrder(case, placement, len(dataset), count_batches(case))
    yield from session.open_pipeline(dataset, order)


def open_dali(case: Case, placement: "Placement", session: "Session") -> Iterator[Any]:
    """Images that NVIDIA DALI reads and augments."""
    # only adapters that list "dali" have it
    pipeline: Any = session
    yield from islice(pipeline.open_dali(placement), count_batches(case))
