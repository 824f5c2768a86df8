"""The ranks that a launcher has started without MPI -> a World over sockets."""

import os
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Sequence

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.failures import write_loss
from dlperf_slurm.worker.joining.meeting import Place, meet
from dlperf_slurm.worker.joining.network import add_suffix
from dlperf_slurm.worker.joining.rows import check_sizes
from dlperf_slurm.worker.joining.socket_communicator import SocketCommunicator
from dlperf_slurm.worker.ranks import PlacementError, World

# what the job script makes for one array task: random bytes in hexadecimal, which no file has
SECRET_VARIABLE = "DLPERF_SLURM_SECRET"
FEWEST_SECRET_BYTES = 16


class SocketWorld(World):
    """The ranks of one array task, without MPI."""

    def __init__(self, place: Place, host_suffix: str, case: Case, attempt_dir: Path) -> None:
        """Wait for all ranks; raises PlacementError where they do not come together."""
        if place.size != case.world_size:
            raise PlacementError(
                f"the launcher has started {place.size} rank(s), the topology asks for "
                f"{case.world_size}"
            )
        secret = read_secret(os.environ) if place.size > 1 else b""
        first_host = add_suffix(place.first_host, host_suffix)
        met = meet(place._replace(first_host=first_host), secret)
        super().__init__(SocketCommunicator(place.rank, met, partial(write_loss, attempt_dir)))

    def leave(self) -> None:
        """Leave all ranks, as the process's end does; this world is of no use after."""
        self._communicator.leave()

    def await_all(self) -> None:
        """Wait for all ranks, which takes no CPU."""
        self.barrier()

    def gather_rows(self, values: Sequence[float]) -> Any:
        """The figures of all ranks as an array [ranks, figures] on rank 0, None elsewhere.

        Ranks send in turn, so that one message at most is beside it. Raises ValueError on all ranks
        alike where these have different numbers of figures, or too many.
        """
        import numpy

        row = numpy.asarray(values, "float64")
        check_sizes(self.exchange(row.size))
        if self.rank != 0:
            self._communicator.send_in_turn(row)
            return None
        rows = numpy.empty((self.size, row.size), "float64")
        rows[0] = row
        for rank, other in enumerate(self._communicator.take_in_turn(), start=1):
            rows[rank] = other
        return rows

    def make_sum(self, values: Any) -> Optional[Callable[[], None]]:
        """None: sums over sockets would say nothing of the machine."""
        return None

    def describe_versions(self) -> Dict[str, str]:
        """Empty: there is no library between the ranks."""
        return {}


def read_secret(environ: Mapping[str, str]) -> bytes:
    """What the ranks of a task know, and nobody else; raises PlacementError where it is not."""
    try:
        secret = bytes.fromhex(environ.get(SECRET_VARIABLE, ""))
    except ValueError:
        secret = b""
    if len(secret) < FEWEST_SECRET_BYTES:
        raise PlacementError(
            f"{SECRET_VARIABLE} is not there, which the job script makes for ranks without MPI; "
            "does the container keep it, and the launcher hand it on?"
        )
    return secret
