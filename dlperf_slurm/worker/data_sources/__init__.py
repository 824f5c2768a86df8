"""Where the batches of a case come from: its data source, named as in `axes.data`.

Each is a generator of staged batches for `session.load`, as many as the steps of the case take.
"""

from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Optional

from dlperf_slurm.contract.axes import DALI, FOLDER, ON_DEVICE, ON_HOST, PIPELINE, PYTHON_QUEUE, ZMQ
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.data_sources.files import open_dali, open_folder
from dlperf_slurm.worker.data_sources.memory import open_host_batch, open_pipeline
from dlperf_slurm.worker.data_sources.python_queue import open_queues
from dlperf_slurm.worker.data_sources.zmq import open_pipes

if TYPE_CHECKING:
    from dlperf_slurm.worker.frameworks import Placement, Session

SOURCES: "Dict[str, Callable[[Case, Placement, Session], Iterator[Any]]]" = {
    ON_HOST: open_host_batch,
    PIPELINE: open_pipeline,
    PYTHON_QUEUE: open_queues,
    ZMQ: open_pipes,
    FOLDER: open_folder,
    DALI: open_dali,
}


def open_batches(case: Case, placement: "Placement", session: "Session") -> Optional[Iterator[Any]]:
    """The case's source; None where the batch that the session starts with serves all steps."""
    return (
        None if case.axes.data == ON_DEVICE else SOURCES[case.axes.data](case, placement, session)
    )
