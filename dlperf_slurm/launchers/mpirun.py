"""Ranks started by Open MPI's mpirun, with or without Slurm around it (mpirun(1))."""

from collections.abc import Sequence

from dlperf_slurm.launchers import Ranks


def make_command(ranks: Ranks, program: Sequence[str]) -> list[str]:
    """Open MPI ends all ranks when one fails, as srun --kill-on-bad-exit does."""
    return [
        "mpirun",
        "-np",
        str(ranks.topology.world_size),
        *ranks.flags,
        *program,
    ]
