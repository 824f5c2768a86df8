"""Real files, read and augmented in the framework's own input pipeline."""

from typing import TYPE_CHECKING, Any, Iterator

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets import open_dataset
from dlperf_slurm.worker.inputs import count_batches
from dlperf_slurm.worker.inputs.order import FileOrder

if TYPE_CHECKING:
    from dlperf_slurm.worker.frameworks import Placement, Session


def open_batches(case: Case, placement: "Placement", session: "Session") -> Iterator[Any]:
    dataset = open_dataset(case, "train")
    order = FileOrder(case, placement, len(dataset), count_batches(case))
    yield from session.open_pipeline(dataset, order)
