"""Ranks and a program -> the command that starts it once per rank; one module per launcher.

A module is named as in `launcher.name`, and has `make_command(ranks, program)`, which returns the
words of the command line, and `count_tasks_per_node(topology)`, the tasks of Slurm on a node. RANKS
are the ways of `worker.joining` by which the ranks that it starts can find each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from dlperf_slurm.contract.topology import Topology


@dataclass(frozen=True)
class Ranks:
    """The processes to start: how many, on how many nodes, with what.

    `wrapper` stands before the program of each, or of what starts those of a node. `by_node` says
    that srun is told the number of tasks on a node too; `host_suffix` stands behind names of hosts;
    `has_gpus` that each rank has a GPU.
    """

    topology: Topology
    cpus_per_rank: int
    mpi: str
    flags: Sequence[str]
    wrapper: Sequence[str] = ()
    command: Sequence[str] = ()
    by_node: bool = True
    host_suffix: str = ""
    has_gpus: bool = False


class Launcher(Protocol):
    RANKS: tuple[str, ...]

    def make_command(self, ranks: Ranks, program: Sequence[str]) -> list[str]: ...
    def count_tasks_per_node(self, topology: Topology) -> int: ...


def make_command(launcher: str, ranks: Ranks, program: Sequence[str]) -> list[str]:
    """The words of the command that starts `program` once per rank with that launcher.

    Raises ModuleNotFoundError for a launcher that is not a module of this package, InputError for
    one that lacks what it needs.
    """
    return _load(launcher).make_command(ranks, program)


def count_tasks_per_node(launcher: str, topology: Topology) -> int:
    """The tasks that Slurm is asked for on each node, which may start several ranks."""
    return _load(launcher).count_tasks_per_node(topology)


def list_kinds_of_ranks(launcher: str) -> tuple[str, ...]:
    """How the ranks that it starts can find each other."""
    return _load(launcher).RANKS


def _load(launcher: str) -> Launcher:
    return cast(Launcher, import_module(f"{__name__}.{launcher}"))
