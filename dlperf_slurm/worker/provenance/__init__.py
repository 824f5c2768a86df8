"""This process -> what its figures depend on: versions, machine, job."""

import os
import platform
from typing import TYPE_CHECKING, Any, Dict, Tuple

from dlperf_slurm.worker.provenance.cpu import describe_binding, describe_cpu
from dlperf_slurm.worker.provenance.environment import describe_environment
from dlperf_slurm.worker.provenance.gpu import describe_gpus
from dlperf_slurm.worker.provenance.hosts import merge_platforms
from dlperf_slurm.worker.provenance.limits import describe_limits
from dlperf_slurm.worker.provenance.network import describe_network
from dlperf_slurm.worker.provenance.software import (
    describe_code,
    describe_container,
    describe_libraries,
    describe_system,
)

if TYPE_CHECKING:
    from dlperf_slurm.contract.record import HostPlatform
    from dlperf_slurm.worker.frameworks import Placement

# what places a job among others, and what changes how fast it runs
_JOB_VARIABLES = (
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_CLUSTER_NAME",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPU_BIND",
    "SLURM_DISTRIBUTION",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPU_BIND",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_QOS",
    "SLURM_MEM_BIND",
    "SLURM_MEM_PER_NODE",
    "SLURM_RESTART_COUNT",
    "SLURM_TOPOLOGY_ADDR",
)

# facts that tell machines or ranks apart, and say nothing about how fast they are
IDENTITIES = (
    "cpu_list",
    "env.CUDA_VISIBLE_DEVICES",
    "env.FLAGS_selected_gpus",
    "gpu_uuids",
    "memory_nodes",
)


def describe_python() -> Dict[str, str]:
    """Versions of Python and NumPy."""
    import numpy

    return {"python": platform.python_version(), "numpy": numpy.__version__}


def describe_versions() -> Dict[str, str]:
    """Versions of what every worker has: Python, NumPy, mpi4py and the MPI library."""
    import mpi4py
    from mpi4py import MPI

    library = MPI.Get_library_version().strip("\0 \n").splitlines()[0]
    return {
        **describe_python(),
        "mpi4py": mpi4py.__version__,
        "mpi": library.split(", package")[0],
    }


def describe_platform() -> Dict[str, str]:
    """The machine of this process, and what the process may use and was told."""
    return {**describe_host(), **describe_rank()}


def describe_host() -> Dict[str, str]:
    """What is true of all ranks of this host."""
    return {
        **describe_system(),
        **describe_container(),
        **describe_code(),
        **describe_cpu(),
        **describe_gpus(),
        **describe_network(),
    }


def describe_rank() -> Dict[str, str]:
    """What may be another for each rank of a host; to be asked when its libraries are loaded."""
    return {
        **describe_binding(),
        **describe_limits(),
        **describe_libraries(),
        **describe_environment(),
    }


def gather_platforms(
    world: Any, placement: "Placement"
) -> "Tuple[Dict[str, str], Tuple[HostPlatform, ...]]":
    """`Record.platform` and `Record.hosts` on rank 0, nothing elsewhere; all ranks call it."""
    of_host = describe_host() if placement.local_rank == 0 else {}
    return merge_platforms(world.gather((placement.host, of_host, describe_rank())))


def describe_job() -> Dict[str, str]:
    """Slurm's names for this job; empty without Slurm."""
    return {name: os.environ[name] for name in _JOB_VARIABLES if name in os.environ}
