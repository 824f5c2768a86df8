"""The ranks that MPI has started -> a World with what only MPI can do."""

import time
from typing import Any, Callable, Dict, Optional

from dlperf_slurm.worker.ranks import World

LOOK_SECONDS = 0.02


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
            time.sleep(LOOK_SECONDS)

    def make_sum(self, values: Any) -> Optional[Callable[[], None]]:
        """What puts the sum over all ranks in the place of an array in host memory."""
        from mpi4py import MPI

        return lambda: self._communicator.Allreduce(MPI.IN_PLACE, values)

    def describe_versions(self) -> Dict[str, str]:
        """Versions of mpi4py and of the MPI library."""
        import mpi4py
        from mpi4py import MPI

        library = MPI.Get_library_version().strip("\0 \n").splitlines()[0]
        return {"mpi4py": mpi4py.__version__, "mpi": library.split(", package")[0]}
