"""A site's rendezvous settings <-> the worker's command-line options.

The modules of this package join the ranks (`communicators`), by MPI or over sockets. Code on the
login node imports only this file.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import List

MPI = "mpi"
SLURM = "slurm"
TORCHRUN = "torchrun"
# rendezvous of the ranks: by MPI, or by the environment variables of srun or torchrun
KINDS = (MPI, SLURM, TORCHRUN)


@dataclass(frozen=True)
class RendezvousSettings:
    """The rendezvous method of the ranks, and the network of the framework's communication."""

    ranks: str = MPI
    host_suffix: str = ""
    interface: str = ""

    def list_words(self) -> List[str]:
        """Format values that are not the defaults as the worker's options: ["--ranks=slurm"]."""
        options = {
            "ranks": self.ranks if self.ranks != MPI else "",
            "host-suffix": self.host_suffix,
            "interface": self.interface,
        }
        return [f"--{name}={value}" for name, value in options.items() if value]


def make_parser(command: str) -> argparse.ArgumentParser:
    """Make a parser of the arguments after `command`: how ranks join, and the attempt's folder."""
    parser = argparse.ArgumentParser(prog=f"python -m dlperf_slurm.worker {command}")
    parser.add_argument("--ranks", choices=KINDS, default=MPI, help="how ranks find each other")
    parser.add_argument(
        "--host-suffix", default="", help="suffix of short host names on the network, such as -ib0"
    )
    parser.add_argument(
        "--interface", default="", help="network interface for the framework, such as ib0"
    )
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="folder of the attempt, with case.json"
    )
    return parser


def read_options(options: argparse.Namespace) -> RendezvousSettings:
    return RendezvousSettings(options.ranks, options.host_suffix, options.interface)
