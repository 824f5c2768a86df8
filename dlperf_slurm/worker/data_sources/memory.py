"""A case -> synthetic samples in host memory, as one batch or by the framework's own pipeline."""

from typing import TYPE_CHECKING, Any, Iterator

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets.batches import count_batches, order_samples
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.synthetic_batch import make_batch, make_samples

if TYPE_CHECKING:
    from dlperf_slurm.worker.frameworks import Placement, Session


def open_host_batch(case: Case, placement: "Placement", session: "Session") -> Iterator[Any]:
    """One batch in the framework's arrays, that each step copies to the device."""
    definition = load_model(case.model).Definition(**case.model_parameters)
    batch = make_batch(definition, case.axes.batch_size, case.seed, placement.rank)
    staged = session.stage(batch)
    for _ in range(count_batches(case)):
        yield staged


def open_pipeline(case: Case, placement: "Placement", session: "Session") -> Iterator[Any]:
    """Samples through the framework's own input pipeline."""
    yield from session.open_pipeline(make_samples(case, placement), order_samples(case))
