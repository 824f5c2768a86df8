"""Ranks -> one group of MindSpore's own, and the scheduler that it needs for that."""

import os
import socket
import subprocess
import sys
import time

from mindspore import communication

from dlperf_slurm.worker.frameworks import Placement

SCHEDULER = "dlperf_slurm.worker.frameworks.mindspore.scheduler"
START_SECONDS = 120


def join_ranks(placement: Placement) -> None:
    """Become one of the ranks; the scheduler is a child of the first."""
    os.environ.update(
        MS_ROLE="MS_WORKER",
        MS_SCHED_HOST=placement.master_address,
        MS_SCHED_PORT=str(placement.master_port),
        MS_WORKER_NUM=str(placement.world_size),
        MS_WORKER_IP=placement.rank_addresses[placement.rank].rpartition(":")[0],
        # it numbers the ranks by it
        MS_NODE_ID=str(placement.rank),
    )
    if placement.rank == 0:
        start_scheduler()
    await_scheduler(placement)
    communication.init()
    if communication.get_rank() != placement.rank:
        raise RuntimeError(
            f"MindSpore's rank {communication.get_rank()} is MPI's rank {placement.rank}"
        )


def meet_ranks() -> None:
    """Wait, for as long as it takes, until all are here: by MPI, which has started them."""
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()


def start_scheduler() -> None:
    """It ends when all ranks have left, which they do as they end, or when this one has ended."""
    subprocess.Popen(
        [sys.executable, "-m", SCHEDULER, str(os.getpid())],
        env={**os.environ, "MS_ROLE": "MS_SCHED"},
        stdin=subprocess.DEVNULL,
    )


def await_scheduler(placement: Placement) -> None:
    """Wait until it listens: a rank that comes too early tries in vain for half a minute."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection((placement.master_address, placement.master_port), 5).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise RuntimeError("MindSpore's scheduler did not start") from error
        time.sleep(0.1)
