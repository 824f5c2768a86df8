"""Ranks started by a site's own command, such as TACC's `ibrun -n 16`."""

from collections.abc import Sequence

from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.launchers import Ranks
from dlperf_slurm.worker.joining import KINDS

# whatever the site's command tells them
RANKS = KINDS


def make_command(ranks: Ranks, program: Sequence[str]) -> list[str]:
    """The site's command, its flags, and the program; raises InputError where there is none."""
    if not ranks.command:
        raise InputError(
            'launcher.command: is empty; the launcher "command" needs one, such as '
            "'ibrun -n {{ world_size }}'"
        )
    return [*ranks.command, *ranks.flags, *ranks.wrapper, *program]


def count_tasks_per_node(topology: Topology) -> int:
    """One task for each rank."""
    return topology.devices_per_node
