"""A program and its ranks -> the command line that starts them; one function per launcher."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.errors import InputError
from dlperf_slurm.worker.rendezvous import KINDS, MPI, SLURM, TORCHRUN

NO_MPI = "none"
# the job script chooses the port, so that jobs on the same node use different ones
RENDEZVOUS_PORT = "${DLPERF_SLURM_PORT}"
# is_host is set explicitly, as torchrun detects the first host only by that host's own name
_START_TORCHRUN = 'exec torchrun --rdzv-conf=is_host=$((SLURM_NODEID == 0)) "$@"'


class ShellTemplate(str):
    """A word of a command line in which the job's bash expands `${NAME}`; all else is literal."""

    __slots__ = ()


@dataclass(frozen=True)
class RankLayout:
    """The ranks to start: topology, cores of each rank, and options of the launcher.

    `wrapper` precedes the program of each rank, or with torchrun the launcher on each node. With
    `by_node`, srun gets the number of tasks per node too. `host_suffix` is appended to host names.
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


MakeCommand = Callable[[RankLayout, Sequence[str]], list[str]]


@dataclass(frozen=True)
class Launcher:
    """A program that starts ranks, and the kinds of rendezvous that they can then use.

    `worker.rendezvous` has these kinds: how ranks find each other. With `starts_nodes`, Slurm
    starts the launcher once per node, and the launcher starts the ranks. With `uses_srun`, the
    site's flags are options of srun, and so may be those of a container.
    """

    make_command: MakeCommand
    rendezvous_methods: tuple[str, ...]
    starts_nodes: bool = False
    uses_srun: bool = False

    def count_tasks_per_node(self, topology: Topology) -> int:
        """Return the Slurm tasks per node: one per device, or 1 if the launcher runs per node."""
        return 1 if self.starts_nodes else topology.devices_per_node


def command(ranks: RankLayout, program: Sequence[str]) -> list[str]:
    """Return the command line that starts ranks by the site's own command, such as `ibrun -n 16`.

    `program` is the command line of each rank. Raises InputError if the site has no such command.
    """
    if not ranks.command:
        raise InputError(
            'launcher.command: is empty; the launcher "command" needs one, such as '
            "'ibrun -n {{ world_size }}'"
        )
    return [*ranks.command, *ranks.flags, *ranks.wrapper, *program]


def mpirun(ranks: RankLayout, program: Sequence[str]) -> list[str]:
    """Return the command line that starts ranks by Open MPI's mpirun, with or without Slurm.

    `program` is the command line of each rank. mpirun ends all ranks if one fails. The site's flags
    replace the default placement, in which each rank may use all cores of its node (Open MPI would
    bind it to a single one).
    """
    placement = ["--map-by", f"ppr:{ranks.topology.devices_per_node}:node:OVERSUBSCRIBE"]
    flags = ranks.flags or [*placement, "--bind-to", "none"]
    return ["mpirun", "-np", str(ranks.topology.world_size), *flags, *ranks.wrapper, *program]


def srun(ranks: RankLayout, program: Sequence[str]) -> list[str]:
    """Return the command line that starts ranks as the tasks of one Slurm step (srun(1)).

    `program` is the command line of each rank. --cpus-per-task is explicit because srun stopped
    inheriting it from sbatch in Slurm 22.05, and inherits it again since 23.11.
    """
    has_placement = any(flag.startswith(("--distribution", "-m")) for flag in ranks.flags)
    return [
        "srun",
        f"--nodes={ranks.topology.nodes}",
        f"--ntasks={ranks.topology.world_size}",
        *([f"--ntasks-per-node={ranks.topology.devices_per_node}"] if ranks.by_node else []),
        f"--cpus-per-task={ranks.cpus_per_rank}",
        # consecutive ranks on the same socket, like consecutive GPUs
        *(["--distribution=block:block"] if ranks.has_gpus and not has_placement else []),
        *([f"--mpi={ranks.mpi}"] if ranks.mpi != NO_MPI else []),
        # end all ranks if one dies, as the others would wait in a collective
        "--kill-on-bad-exit=1",
        *ranks.flags,
        *ranks.wrapper,
        *program,
    ]


def torchrun(ranks: RankLayout, program: Sequence[str]) -> list[str]:
    """Return the command line by which srun starts torchrun per node, and torchrun the ranks.

    torchrun gets the cores of all ranks on its node. Ranks use RANK, WORLD_SIZE and MASTER_ADDR
    instead of MPI. The rendezvous is on the first node, where the job script runs. Further options
    of torchrun can be set by PET_* variables (torchrun --help).
    """
    nodes, local_size = ranks.topology.nodes, ranks.topology.devices_per_node
    rendezvous = [
        *("bash", "-c", _START_TORCHRUN, "torchrun", "--rdzv-backend=c10d"),
        ShellTemplate("--rdzv-id=${SLURM_JOB_ID}"),
        ShellTemplate(f"--rdzv-endpoint=${{SLURMD_NODENAME}}{ranks.host_suffix}:{RENDEZVOUS_PORT}"),
    ]
    return [
        "srun",
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        *(["--ntasks-per-node=1"] if ranks.by_node else []),
        f"--cpus-per-task={ranks.cpus_per_rank * local_size}",
        "--kill-on-bad-exit=1",
        *ranks.flags,
        *ranks.wrapper,
        *(rendezvous if nodes > 1 else ["torchrun", "--standalone"]),
        f"--nnodes={nodes}",
        f"--nproc-per-node={local_size}",
        "--no-python",
        *program,
    ]


# by the name in `launcher.name`
LAUNCHERS: Mapping[str, Launcher] = {
    "command": Launcher(command, KINDS),
    "mpirun": Launcher(mpirun, (MPI,)),
    "srun": Launcher(srun, (MPI, SLURM), uses_srun=True),
    "torchrun": Launcher(torchrun, (TORCHRUN,), starts_nodes=True, uses_srun=True),
}
