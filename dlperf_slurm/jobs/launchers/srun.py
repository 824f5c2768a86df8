"""Ranks as the tasks of one Slurm step (srun(1))."""

from collections.abc import Sequence

from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.jobs.launchers import Ranks
from dlperf_slurm.worker.joining import MPI, SLURM

RANKS = (MPI, SLURM)
NO_MPI = "none"


def make_command(ranks: Ranks, program: Sequence[str]) -> list[str]:
    """The words of an srun command, which says again what the #SBATCH lines said.

    Slurm 22.05 stopped to hand --cpus-per-task from sbatch to srun and 23.11 began again, so that
    what is inherited depends on the version.
    """
    has_placement = any(flag.startswith(("--distribution", "-m")) for flag in ranks.flags)
    return [
        "srun",
        f"--nodes={ranks.topology.nodes}",
        f"--ntasks={ranks.topology.world_size}",
        *([f"--ntasks-per-node={ranks.topology.devices_per_node}"] if ranks.by_node else []),
        f"--cpus-per-task={ranks.cpus_per_rank}",
        # neighbours by rank on one socket, as GPUs by their number are
        *(["--distribution=block:block"] if ranks.has_gpus and not has_placement else []),
        *([f"--mpi={ranks.mpi}"] if ranks.mpi != NO_MPI else []),
        # a rank that dies takes the others with it, instead of leaving them in a collective
        "--kill-on-bad-exit=1",
        *ranks.flags,
        *ranks.wrapper,
        *program,
    ]


def count_tasks_per_node(topology: Topology) -> int:
    """One task for each rank."""
    return topology.devices_per_node
