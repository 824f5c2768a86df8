"""Horovod, with which several adapters average gradients: joining its ranks, and its version."""

from typing import Any, Dict

from dlperf_slurm.contract.axes import HOROVOD
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import RankInfo


def join_horovod(horovod: Any, rank_info: RankInfo) -> None:
    """Initialize Horovod; `horovod` is its module for one framework, such as horovod.torch.

    Raises RuntimeError if its number of ranks differs from that of MPI.
    """
    horovod.init()
    if horovod.size() != rank_info.world_size:
        raise RuntimeError(
            f"Horovod sees {horovod.size()} rank(s), but MPI has {rank_info.world_size}: build "
            "Horovod again with the MPI of mpi4py"
        )


def read_horovod_version(case: Case) -> Dict[str, str]:
    """Return {"horovod": version}, or {} for a case that does not use Horovod."""
    if case.axes.gradient_sync != HOROVOD:
        return {}
    import horovod

    return {"horovod": str(horovod.__version__)}
