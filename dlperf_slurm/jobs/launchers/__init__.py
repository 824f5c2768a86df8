"""Ranks and a program -> the command that starts it once per rank; one module per launcher.

A module is named as in `launcher.name`, and has `make_command(ranks, program)`, which returns the
words of the command line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from dlperf_slurm.contract.topology import Topology


@dataclass(frozen=True)
class Ranks:
    """The processes to start: how many, on how many nodes, with what."""

    topology: Topology
    cpus_per_rank: int
    mpi: str
    flags: Sequence[str]


class Launcher(Protocol):
    def make_command(self, ranks: Ranks, program: Sequence[str]) -> list[str]: ...


def make_command(launcher: str, ranks: Ranks, program: Sequence[str]) -> list[str]:
    """The words of the command that starts `program` once per rank with that launcher.

    Raises ModuleNotFoundError for a launcher that is not a module of this package.
    """
    module = cast(Launcher, import_module(f"{__name__}.{launcher}"))
    return module.make_command(ranks, program)
