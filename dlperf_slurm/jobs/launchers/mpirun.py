"""Ranks started by Open MPI's mpirun, with or without Slurm around it (mpirun(1))."""

from collections.abc import Sequence

from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.jobs.launchers import Ranks
from dlperf_slurm.worker.joining import MPI

RANKS = (MPI,)


def make_command(ranks: Ranks, program: Sequence[str]) -> list[str]:
    """The words of an mpirun command, which ends all ranks when one fails.

    Flags of the site stand in for the placement that is chosen here: so many ranks on each node,
    free to use all of its cores (Open MPI would bind each rank to a single one).
    """
    placement = [
        "--map-by",
        f"ppr:{ranks.topology.devices_per_node}:node:OVERSUBSCRIBE",
        "--bind-to",
        "none",
    ]
    return [
        "mpirun",
        "-np",
        str(ranks.topology.world_size),
        *(ranks.flags or placement),
        *ranks.wrapper,
        *program,
    ]


def count_tasks_per_node(topology: Topology) -> int:
    """One task for each rank."""
    return topology.devices_per_node
