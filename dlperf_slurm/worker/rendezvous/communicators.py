"""The site's `ranks` setting -> the World of a case's ranks, by MPI or over sockets."""

import os
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Union

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.failures import write_loss
from dlperf_slurm.worker.ranks import PlacementError, World
from dlperf_slurm.worker.rendezvous import MPI, RendezvousSettings
from dlperf_slurm.worker.rendezvous.connections import connect_ranks
from dlperf_slurm.worker.rendezvous.network import add_suffix
from dlperf_slurm.worker.rendezvous.rank_environment import read_rank_environment
from dlperf_slurm.worker.rendezvous.socket_communicator import SocketCommunicator

# random bytes in hexadecimal, made by the job script per array task and never written to a file
SECRET_VARIABLE = "DLPERF_SLURM_SECRET"
FEWEST_SECRET_BYTES = 16
POLL_SECONDS = 0.02
# counts and displacements before MPI 4 are of C type int
MOST_FIGURES = 2**31 - 1


class MpiWorld(World):
    """The ranks of one array task, joined by mpi4py."""

    def __init__(self) -> None:
        """Initialize MPI."""
        from mpi4py import MPI

        super().__init__(MPI.COMM_WORLD)

    def await_all(self) -> None:
        """Wait for all ranks without busy waiting, which would take CPU time from working ranks."""
        request = self._communicator.Ibarrier()
        while not request.Test():
            time.sleep(POLL_SECONDS)

    def leave(self) -> None:
        """Finalize MPI, as the end of the process does; this object is unusable afterwards."""
        from mpi4py import MPI

        MPI.Finalize()

    def gather_rows(self, values: Sequence[float]) -> Any:
        """Gather equally long rows to an array [ranks, values] on rank 0, None elsewhere.

        Raises ValueError on all ranks if the rows differ in length or have too many values in all.
        """
        import numpy

        row = numpy.asarray(values, "float64")
        sizes = numpy.empty(self.size, "int64")
        self._communicator.Allgather(numpy.array([row.size], "int64"), sizes)
        check_sizes(sizes.tolist())
        rows = numpy.empty((self.size, row.size), "float64") if self.rank == 0 else None
        self._communicator.Gather(row, rows, root=0)
        return rows

    def make_sum(self, values: Any) -> Optional[Callable[[], None]]:
        """Return a function that sums the NumPy array `values` over all ranks in place."""
        from mpi4py import MPI

        return lambda: self._communicator.Allreduce(MPI.IN_PLACE, values)

    def describe_versions(self) -> Dict[str, str]:
        """Return {"mpi4py": version, "mpi": name and version of the MPI library}."""
        import mpi4py
        from mpi4py import MPI

        library = MPI.Get_library_version().strip("\0 \n").splitlines()[0]
        return {"mpi4py": mpi4py.__version__, "mpi": library.split(", package")[0]}


class SocketWorld(World):
    """The ranks of one array task, joined over sockets without MPI."""

    def __init__(self, rendezvous: RendezvousSettings, case: Case, attempt_dir: Path) -> None:
        """Wait for all ranks to connect; raises PlacementError if they do not.

        The failure of a rank that is lost later is written to `attempt_dir`.
        """
        place = read_rank_environment(rendezvous.ranks, os.environ)
        if place.size != case.world_size:
            raise PlacementError(
                f"the launcher started {place.size} rank(s), but the topology needs "
                f"{case.world_size}"
            )
        secret = read_secret(os.environ) if place.size > 1 else b""
        first_host = add_suffix(place.first_host, rendezvous.host_suffix)
        met = connect_ranks(place._replace(first_host=first_host), secret)
        super().__init__(SocketCommunicator(place.rank, met, partial(write_loss, attempt_dir)))

    def leave(self) -> None:
        """Disconnect, as the end of the process does; this object is unusable afterwards."""
        self._communicator.leave()

    def await_all(self) -> None:
        """Wait for all ranks without using CPU time."""
        self.barrier()

    def gather_rows(self, values: Sequence[float]) -> Any:
        """Gather rows, as `MpiWorld.gather_rows` does."""
        import numpy

        row = numpy.asarray(values, "float64")
        check_sizes(self.exchange(row.size))
        rows = self.gather(row)
        return numpy.array(rows) if self.rank == 0 else None

    def make_sum(self, values: Any) -> Optional[Callable[[], None]]:
        """Return None: the speed of sums over these sockets is not that of the network."""
        return None

    def describe_versions(self) -> Dict[str, str]:
        """Return {}: no communication library is used."""
        return {}


RankWorld = Union[MpiWorld, SocketWorld]


def join_ranks(rendezvous: RendezvousSettings, case: Case, attempt_dir: Path) -> RankWorld:
    """Join all ranks by MPI or sockets; raises PlacementError if not all connect over sockets."""
    if rendezvous.ranks == MPI:
        return MpiWorld()
    # if set, the framework's own rendezvous would connect to torchrun's store on another port
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    return SocketWorld(rendezvous, case, attempt_dir)


def read_secret(environ: Mapping[str, str]) -> bytes:
    """Return the ranks' secret from hexadecimal SECRET_VARIABLE; PlacementError if not valid."""
    try:
        secret = bytes.fromhex(environ.get(SECRET_VARIABLE, ""))
    except ValueError:
        secret = b""
    if len(secret) < FEWEST_SECRET_BYTES:
        raise PlacementError(
            f"{SECRET_VARIABLE} is not set, though the job script sets it for ranks without MPI; "
            "check that launcher and container pass this variable to the ranks"
        )
    return secret


def check_sizes(sizes: Sequence[int]) -> None:
    """Raise ValueError if the rows of the ranks differ in length or have too many values in all.

    All ranks know all sizes, so that each raises before any of them starts to gather.
    """
    for rank, size in enumerate(sizes):
        if size != sizes[0]:
            raise ValueError(
                f"cannot gather results: rank {rank} has {size} values, but rank 0 has {sizes[0]}"
            )
    if sum(sizes) > MOST_FIGURES:
        raise ValueError(
            f"{len(sizes)} ranks with {sizes[0]} values each are more than the {MOST_FIGURES} "
            "values that rank 0 can gather; measure fewer steps"
        )
