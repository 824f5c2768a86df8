"""Ranks started by torchrun, which Slurm starts once on each node (torch.distributed.run).

They find each other by RANK, WORLD_SIZE and MASTER_ADDR, and need no MPI.
"""

from collections.abc import Sequence

from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.jobs.launchers import Ranks
from dlperf_slurm.jobs.quoting import Expanding
from dlperf_slurm.worker.joining import TORCHRUN

RANKS = (TORCHRUN,)
# the job script chooses it, so that jobs on one node wait at different ones
RENDEZVOUS_PORT = "${DLPERF_SLURM_PORT}"
# torchrun itself takes no other name of a host than its own for that of the first
_START = 'exec torchrun --rdzv-conf=is_host=$((SLURM_NODEID == 0)) "$@"'


def make_command(ranks: Ranks, program: Sequence[str]) -> list[str]:
    """The words of an srun command whose one task on each node is torchrun.

    It has the cores of all ranks of its node. The job script runs on the first node, whose name
    Slurm tells it. Further options of torchrun are variables named PET_... (torchrun --help).
    """
    nodes, local_size = ranks.topology.nodes, ranks.topology.devices_per_node
    meeting = [
        *("bash", "-c", _START, "torchrun", "--rdzv-backend=c10d"),
        Expanding("--rdzv-id=${SLURM_JOB_ID}"),
        Expanding(f"--rdzv-endpoint=${{SLURMD_NODENAME}}{ranks.host_suffix}:{RENDEZVOUS_PORT}"),
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
        *(meeting if nodes > 1 else ["torchrun", "--standalone"]),
        f"--nnodes={nodes}",
        f"--nproc-per-node={local_size}",
        "--no-python",
        *program,
    ]


def count_tasks_per_node(topology: Topology) -> int:
    """One task, which starts the ranks of its node."""
    return 1
