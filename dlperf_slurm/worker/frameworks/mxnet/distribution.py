"""Ranks -> the trainer that sums up their gradients, and the servers that it needs for that."""

import os
import subprocess
import sys
from typing import Any, Dict, List, Tuple

import mxnet as mx
from mxnet.gluon import Parameter, Trainer

from dlperf_slurm.contract import Case
from dlperf_slurm.worker.frameworks import Placement

Servers = List["subprocess.Popen[bytes]"]

SERVER = "dlperf_slurm.worker.frameworks.mxnet.server"
END_SECONDS = 10


def join_ranks(
    case: Case, placement: Placement, parameters: Dict[str, Parameter], optimizer: Any
) -> Tuple[Trainer, Servers]:
    """A trainer whose `_scale` makes the gradients' mean of what it sums up."""
    if case.distribution == "horovod":
        return make_horovod_trainer(placement, parameters, optimizer), []
    # Trainer only sums over the ranks, and takes its scale from here.
    optimizer.rescale_grad = 1 / placement.world_size
    if placement.world_size == 1:
        return Trainer(parameters, optimizer, kvstore=None), []
    servers = start_servers(case, placement)
    # Updated in the ranks, since the servers would know neither the clipping nor the decay.
    trainer = Trainer(parameters, optimizer, kvstore="dist_sync", update_on_kvstore=False)
    # Left to itself, it joins in its first step, and pushes gradients beside the pulls of initial
    # weights. These may be overtaken: then a rank starts with a gradient for a weight.
    trainer._init_kvstore()
    trainer._init_params()
    mx.nd.waitall()
    return trainer, servers


def make_horovod_trainer(
    placement: Placement, parameters: Dict[str, Parameter], optimizer: Any
) -> Trainer:
    import horovod.mxnet as hvd

    hvd.init()
    if hvd.size() != placement.world_size:
        raise RuntimeError(
            f"Horovod sees {hvd.size()} rank(s), MPI {placement.world_size}: "
            "was it built for this MPI?"
        )
    return hvd.DistributedTrainer(parameters, optimizer)


def start_servers(case: Case, placement: Placement) -> Servers:
    """One parameter server on each node, and on the first one the scheduler."""
    os.environ.update(
        DMLC_ROLE="worker",
        DMLC_PS_ROOT_URI=placement.master_address,
        DMLC_PS_ROOT_PORT=str(placement.master_port),
        DMLC_NUM_WORKER=str(placement.world_size),
        DMLC_NUM_SERVER=str(case.nodes),
        DMLC_NODE_HOST=placement.rank_addresses[placement.rank].rpartition(":")[0],
    )
    roles = ["scheduler"] if placement.rank == 0 else []
    roles += ["server"] if placement.local_rank == 0 else []
    return [
        subprocess.Popen(
            [sys.executable, "-m", SERVER, str(os.getpid())],
            env={**os.environ, "DMLC_ROLE": role},
            stdin=subprocess.DEVNULL,
        )
        for role in roles
    ]


def end_servers(servers: Servers) -> None:
    """Wait for those that were told to end, then end those that did not."""
    for server in servers:
        try:
            server.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
