"""The ranks that MPI has started -> a World with what only MPI can do."""

import time
from typing import Any, Callable, Dict, Optional, Sequence

from dlperf_slurm.worker.joining.rows import check_sizes
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

    def leave(self) -> None:
        """Leave all ranks, as the process's end does; this world is of no use after."""
        from mpi4py import MPI

        MPI.Finalize()

    def gather_rows(self, values: Sequence[float]) -> Any:
        """The figures of all ranks as an array [ranks, figures] on rank 0, None elsewhere.

        They arrive in their place in it. Raises ValueError on all ranks alike where these have
        different numbers of figures, or too many.
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
        """What puts the sum over all ranks in the place of an array in host memory."""
        from mpi4py import MPI

        return lambda: self._communicator.Allreduce(MPI.IN_PLACE, values)

    def describe_versions(self) -> Dict[str, str]:
        """Versions of mpi4py and of the MPI library."""
        import mpi4py
        from mpi4py import MPI

        library = MPI.Get_library_version().strip("\0 \n").splitlines()[0]
        return {"mpi4py": mpi4py.__version__, "mpi": library.split(", package")[0]}
