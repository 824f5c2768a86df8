"""One batch in host memory, in the framework's arrays, that each step copies to the device."""

from typing import TYPE_CHECKING, Any, Iterator

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.data import make_batch
from dlperf_slurm.worker.inputs import count_batches
from dlperf_slurm.worker.models import load_model

if TYPE_CHECKING:
    from dlperf_slurm.worker.frameworks import Placement, Session


def open_batches(case: Case, placement: "Placement", session: "Session") -> Iterator[Any]:
    definition = load_model(case.model).Definition(**case.model_parameters)
    batch = make_batch(definition, case.batch_size_per_device, case.seed, placement.rank)
    staged = session.stage(batch)
    for _ in range(count_batches(case)):
        yield staged
