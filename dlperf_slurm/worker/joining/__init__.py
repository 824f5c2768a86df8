"""How ranks find each other, as a site says it <-> the words that tell the worker.

The modules here join the ranks (`worlds`), by MPI or over sockets. The login side reads this file
alone.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import List, Sequence

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
