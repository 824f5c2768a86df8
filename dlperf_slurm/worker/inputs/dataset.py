"""Samples in memory, through the framework's own input pipeline."""

from typing import TYPE_CHECKING, Any, Iterator

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.inputs import make_samples, order_samples

if TYPE_CHECKING:
    from dlperf_slurm.worker.frameworks import Placement, Session


def open_batches(case: Case, placement: "Placement", session: "Session") -> Iterator[Any]:
    yield from session.open_pipeline(make_samples(case, placement), order_samples(case))
