"""The site's `ranks` -> this process as one of the ranks of a case, by MPI or over sockets."""

import os
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Union

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.failures import write_loss
from dlperf_slurm.worker.joining import MPI, Joining
from dlperf_slurm.worker.joining.meeting import meet
from dlperf_slurm.worker.joining.network import add_suffix
from dlperf_slurm.worker.joining.places import find_place
from dlperf_slurm.worker.joining.socket_communicator import SocketCommunicator
from dlperf_slurm.worker.ranks import PlacementError, World

# random bytes in hexadecimal, which the job script makes for one array task and no file has
SECRET_VARIABLE = "DLPERF_SLURM_SECRET"
FEWEST_SECRET_BYTES = 16
POLL_SECONDS = 0.02
# counts and displacements of MPI before its version 4 are C's int
MOST_FIGURES = 2**31 - 1


class MpiWorld(World):
    """The ranks of one array task, by mpi4py."""

    def __init__(self) -> None:
        """Initialize MPI and become one of its ranks."""
        from mpi4py import MPI

        super().__init__(MPI.COMM_WORLD)

    def await_all(self) -> None:
        """Wait for all ranks; MPI's own barrier would take the CPU from who still works."""
        request = self._communicator.Ibarrier()
        while not request.Test():
            time.sleep(POLL_SECONDS)

    def leave(self) -> None:
        """Leave all ranks, as the end of the process does; this world is of no use after."""
        from mpi4py import MPI

        MPI.Finalize()

    def gather_rows(self, values: Sequence[float]) -> Any:
        """Gather the figures of all ranks as an array [ranks, figures] on rank 0, None elsewhere.

        Raises ValueError on all ranks alike if these have different numbers of figures, or too
        many.
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
        """Return what replaces an array in host memory by its sum over all ranks."""
        from mpi4py import MPI

        return lambda: self._communicator.Allreduce(MPI.IN_PLACE, values)

    def describe_versions(self) -> Dict[str, str]:
        """Return the versions of mpi4py and of the MPI library."""
        import mpi4py
        from mpi4py import MPI

        library = MPI.Get_library_version().strip("\0 \n").splitlines()[0]
        return {"mpi4py": mpi4py.__version__, "mpi": library.split(", package")[0]}


class SocketWorld(World):
    """The ranks of one array task, without MPI."""

    def __init__(self, joining: Joining, case: Case, attempt_dir: Path) -> None:
        """Wait for all ranks; raises PlacementError if they do not come together."""
        place = find_place(joining.ranks, os.environ)
        if place.size != case.world_size:
            raise PlacementError(
                f"the launcher has started {place.size} rank(s), the topology asks for "
                f"{case.world_size}"
            )
        secret = read_secret(os.environ) if place.size > 1 else b""
        first_host = add_suffix(place.first_host, joining.host_suffix)
        met = meet(place._replace(first_host=first_host), secret)
        super().__init__(SocketCommunicator(place.rank, met, partial(write_loss, attempt_dir)))

    def leave(self) -> None:
        """Leave all ranks, as the end of the process does; this world is of no use after."""
        self._communicator.leave()

    def await_all(self) -> None:
        """Wait for all ranks, which takes no CPU."""
        self.barrier()

    def gather_rows(self, values: Sequence[float]) -> Any:
        """Gather figures, as `MpiWorld.gather_rows` does."""
        import numpy

        row = numpy.asarray(values, "float64")
        check_sizes(self.exchange(row.size))
        rows = self.gather(row)
        return numpy.array(rows) if self.rank == 0 else None

    def make_sum(self, values: Any) -> Optional[Callable[[], None]]:
        """Return None: sums over sockets would say nothing of the machine."""
        return None

    def describe_versions(self) -> Dict[str, str]:
        """Return nothing: there is no library between the ranks."""
        return {}


RankWorld = Union[MpiWorld, SocketWorld]


def join_ranks(joining: Joining, case: Case, attempt_dir: Path) -> RankWorld:
    """Wait for all ranks of the case; raises PlacementError if they do not come together."""
    if joining.ranks == MPI:
        return MpiWorld()
    # with it the framework's own rendezvous would look for torchrun's, which is at another port
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    return SocketWorld(joining, case, attempt_dir)


def read_secret(environ: Mapping[str, str]) -> bytes:
    """Return the secret of the ranks of a task; raises PlacementError if there is none."""
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


def check_sizes(sizes: Sequence[int]) -> None:
    """Raise ValueError if ranks have different numbers of figures, or too many in all.

    All ranks know all sizes, so that each raises before any sends its figures.
    """
    for rank, size in enumerate(sizes):
        if size != sizes[0]:
            raise ValueError(f"rank {rank} has {size} figures, rank 0 has {sizes[0]}")
    if sum(sizes) > MOST_FIGURES:
        raise ValueError(
            f"{len(sizes)} ranks with {sizes[0]} figures each are more than the {MOST_FIGURES} "
            "that are gathered: measure fewer steps"
        )
