"""Horovod, which several adapters bring gradients together by: its ranks, and its version."""

from typing import Any, Dict

from dlperf_slurm.contract.axes import HOROVOD
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import Placement


def join_horovod(horovod: Any, placement: Placement) -> None:
    """Join the ranks by `horovod`, its module for one framework.

    Raises RuntimeError where it sees other ranks than MPI.
    """
    horovod.init()
    if horovod.size() != placement.world_size:
        raise RuntimeError(
            f"Horovod sees {horovod.size()} rank(s), MPI {placement.world_size}: "
            "was it built for this MPI?"
        )


def read_horovod_version(case: Case) -> Dict[str, str]:
    """Empty for a case that does not use it."""
    if case.axes.gradient_sync != HOROVOD:
        return {}
    import horovod

    return {"horovod": str(horovod.__version__)}
