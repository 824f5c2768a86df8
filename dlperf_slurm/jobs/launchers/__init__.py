"""What starts the ranks: one module per launcher, named as in `launcher.name`.

Each has `make_command(ranks, program)`, which returns the words of the command line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from dlperf_slurm.contract.topology import Topology


@dataclass(frozen=True)
class Ranks:
    """How many processes, where, and with what."""

    topology: Topology
    cpus_per_rank: int
    mpi: str
    flags: Sequence[str]


class Launcher(Protocol):
    def make_command(self, ranks: Ranks, program: Sequence[str]) -> list[str]: ...


def make_command(launcher: str, ranks: Ranks, program: Sequence[str]) -> list[str]:
    """The words that start `program` once per rank with the launcher of that name."""
    module = cast(Launcher, import_module(f"{__name__}.{launcher}"))
    return module.make_command(ranks, program)
