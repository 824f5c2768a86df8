"""The site's `ranks` -> this process as one of the ranks, by MPI or over sockets.

The module of a way without MPI is named as in `ranks`, and has `find_place(environ)`: what the
launcher says of this process.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Mapping, Union, cast

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.joining import MPI, Joining
from dlperf_slurm.worker.joining.mpi_world import MpiWorld
from dlperf_slurm.worker.joining.socket_world import SocketWorld

if TYPE_CHECKING:
    from typing import Protocol

    from dlperf_slurm.worker.joining.meeting import Place

    class Source(Protocol):
        def find_place(self, environ: Mapping[str, str]) -> Place: ...


RankWorld = Union[MpiWorld, SocketWorld]


def join_ranks(joining: Joining, case: Case, attempt_dir: Path) -> RankWorld:
    """Wait for all ranks of the case; raises PlacementError where they do not come together."""
    if joining.ranks == MPI:
        return MpiWorld()
    # with it the framework's own rendezvous would look for torchrun's, which is at another port
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    source = cast("Source", import_module(f"dlperf_slurm.worker.joining.{joining.ranks}"))
    place = source.find_place(os.environ)
    return SocketWorld(place, joining.host_suffix, case, attempt_dir)
