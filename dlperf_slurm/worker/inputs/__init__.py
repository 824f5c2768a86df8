"""Where batches come from: one module per data source, named as in `axes.data` ("-" is "_").

Each has `open_batches(case, placement, session)`, a generator of staged batches for `session.load`,
as many as the steps of the case take.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Iterator, List, Optional

from dlperf_slurm.contract.axes import ON_DEVICE
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets.batches import list_indices
from dlperf_slurm.worker.datasets.synthetic import SyntheticSamples
from dlperf_slurm.worker.models import load_model

if TYPE_CHECKING:
    from dlperf_slurm.worker.frameworks import Keys, Placement, Session


def open_batches(case: Case, placement: "Placement", session: "Session") -> Optional[Iterator[Any]]:
    """The case's source; None where the batch that the session starts with serves all steps."""
    if case.data == ON_DEVICE:
        return None
    module: Any = import_module(f"{__name__}.{case.data.replace('-', '_')}")
    batches: Iterator[Any] = module.open_batches(case, placement, session)
    return batches


def count_batches(case: Case) -> int:
    """Of one rank, for all steps."""
    return (case.warmup_steps + case.measured_steps) * case.gradient_accumulation


def make_samples(case: Case, placement: "Placement") -> SyntheticSamples:
    """The samples of this rank's own batch, for sources without files."""
    definition = load_model(case.model).Definition(**case.model_parameters)
    return SyntheticSamples(definition, case.batch_size_per_device, case.seed, placement.rank)


def order_samples(case: Case) -> "List[Keys]":
    """Every sample of `make_samples` once in each batch, in an order of its own."""
    size = case.batch_size_per_device
    return [
        [(epoch, int(index)) for index in list_indices(size, case.seed, epoch, is_shuffled=True)]
        for epoch in range(count_batches(case))
    ]
