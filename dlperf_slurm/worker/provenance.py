"""This process -> what its figures depend on: versions, machine, job."""

import os
import platform
from typing import Dict

from dlperf_slurm.worker.host import read_cpu_name

# what places a job among others, and what changes how fast it runs
_JOB_VARIABLES = (
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_PARTITION",
    "SLURM_RESTART_COUNT",
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
    """The machine of this rank, as far as the standard library knows it."""
    return {
        "machine": platform.machine(),
        "kernel": platform.release(),
        "cpu_model": read_cpu_name(),
        "cpu_count": str(os.cpu_count()),
        "cpus_allowed": str(len(os.sched_getaffinity(0))),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS", ""),
    }


def describe_job() -> Dict[str, str]:
    """Slurm's names for this job; empty without Slurm."""
    return {name: os.environ[name] for name in _JOB_VARIABLES if name in os.environ}
