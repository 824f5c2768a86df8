"""Real images, read and augmented by NVIDIA DALI."""

from itertools import islice
from typing import TYPE_CHECKING, Any, Iterator

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.inputs import count_batches

if TYPE_CHECKING:
    from dlperf_slurm.worker.frameworks import Placement, Session


def open_batches(case: Case, placement: "Placement", session: "Session") -> Iterator[Any]:
    # only adapters that list "dali" have it
    pipeline: Any = session
    yield from islice(pipeline.open_dali(placement), count_batches(case))
