"""The site's `ranks` -> this process as one of the ranks, by MPI or over sockets.

A module with `find_place(environ)` tells what a launcher says of a process; MPI needs none.
"""

import argparse
import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, List, Mapping, Sequence, Union, cast

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.joining.mpi_world import MpiWorld
from dlperf_slurm.worker.joining.socket_world import SocketWorld

if TYPE_CHECKING:
    from typing import Protocol

    from dlperf_slurm.worker.joining.meeting import Place

    class Source(Protocol):
        def find_place(self, environ: Mapping[str, str]) -> Place: ...


RankWorld = Union[MpiWorld, SocketWorld]

MPI = "mpi"
SLURM = "slurm"
TORCHRUN = "torchrun"
# how ranks find each other: by MPI, or by what srun or torchrun tells each in variables
KINDS = (MPI, SLURM, TORCHRUN)


@dataclass(frozen=True)
class Joining:
    """How ranks find each other, and on which network the framework's ranks do."""

    ranks: str = MPI
    host_suffix: str = ""
    interface: str = ""

    def list_words(self) -> List[str]:
        """The options of the worker that say so; none for what is not asked for."""
        options = {
            "ranks": self.ranks if self.ranks != MPI else "",
            "host-suffix": self.host_suffix,
            "interface": self.interface,
        }
        return [f"--{name}={value}" for name, value in options.items() if value]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Have a parser take the words of `Joining.list_words`."""
    parser.add_argument("--ranks", choices=KINDS, default=MPI, help="how ranks find each other")
    parser.add_argument("--host-suffix", default="", help="behind short names of hosts")
    parser.add_argument("--interface", default="", help="network interface of the framework")


def read_options(options: argparse.Namespace) -> Joining:
    return Joining(options.ranks, options.host_suffix, options.interface)


def parse_run_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The words after `run`."""
    parser = argparse.ArgumentParser(prog="python -m dlperf_slurm.worker run")
    add_options(parser)
    parser.add_argument("directory", type=Path, metavar="DIR", help="with case.json")
    return parser.parse_args(arguments)


def join_ranks(joining: Joining, case: Case, attempt_dir: Path) -> RankWorld:
    """Wait for all ranks of the case; raises PlacementError where they do not come together."""
    if joining.ranks == MPI:
        return MpiWorld()
    # with it the framework's own rendezvous would look for torchrun's, which is at another port
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    source = cast("Source", import_module(f"{__name__}.{joining.ranks}"))
    place = source.find_place(os.environ)
    return SocketWorld(place, joining.host_suffix, case, attempt_dir)
