"""Ranks -> the trainer that sums up their gradients, and the servers that it needs for that."""

import os
import pickle
import subprocess
import sys
from typing import Any, Callable, Dict, NamedTuple

import mxnet as mx
from mxnet.gluon import Parameter, Trainer

from dlperf_slurm.contract.axes import PARAMETER_SERVER
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.frameworks.mxnet.serving import FIRST_SUM
from dlperf_slurm.worker.servers import WatchedServers

SERVER = "dlperf_slurm.worker.frameworks.mxnet.server"
# KVStore's name for a message to the Python of a server
CONTROLLER = 0


class Ranks(NamedTuple):
    """`trainer._scale` makes the gradients' mean of what `sum_gradients` sums up in place."""

    trainer: Trainer
    sum_gradients: Callable[[], None]
    servers: WatchedServers


def join_ranks(
    case: Case, placement: Placement, parameters: Dict[str, Parameter], optimizer: Any
) -> Ranks:
    if case.axes.distribution == "horovod":
        trainer = make_horovod_trainer(placement, parameters, optimizer)
        return Ranks(trainer, trainer.allreduce_grads, WatchedServers([]))
    # Trainer only sums over the ranks, and takes its scale from here.
    optimizer.rescale_grad /= placement.world_size
    if placement.world_size == 1:
        trainer = Trainer(parameters, optimizer, kvstore=None)
        return Ranks(trainer, trainer.allreduce_grads, WatchedServers([]))
    servers = start_servers(case, placement)
    is_on_servers = case.axes.distribution == PARAMETER_SERVER
    trainer = Trainer(parameters, optimizer, kvstore="dist_sync", update_on_kvstore=is_on_servers)
    # What goes to the servers is the optimizer without the parameters, which have their decay.
    optimizer.wd_mult = {i: parameter.wd_mult for i, parameter in enumerate(trainer._params)}
    # Left to itself, it joins in its first step, and pushes gradients beside the pulls of initial
    # weights. These may be overtaken: then a rank starts with a gradient for a weight.
    trainer._init_kvstore()
    trainer._init_params()
    mx.nd.waitall()
    if is_on_servers:
        return Ranks(trainer, ServerSums(trainer), servers)
    return Ranks(trainer, trainer.allreduce_grads, servers)


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


def set_learning_rate(trainer: Trainer, learning_rate: float) -> None:
    """Of the next update, in the rank or in the servers.

    These have then made all updates before it, and await every rank for the next one.
    """
    trainer.set_learning_rate(learning_rate)
    if trainer._update_on_kvstore:
        message = pickle.dumps(learning_rate, 0).decode()
        trainer._kvstore._send_command_to_servers(CONTROLLER, message)


class ServerSums:
    """Gradients that the servers only sum up, though they update weights by others."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._is_known = False

    def __call__(self) -> None:
        store = self._trainer._kvstore
        for key, parameter in enumerate(self._trainer._params, FIRST_SUM):
            gradient = parameter.grad()
            if not self._is_known:
                store.init(key, gradient)
            store.pushpull(key, gradient)
        self._is_known = True


def start_servers(case: Case, placement: Placement) -> WatchedServers:
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
    return WatchedServers(
        [
            subprocess.Popen(
                [sys.executable, "-m", SERVER, str(os.getpid())],
                env={**os.environ, "DMLC_ROLE": role},
                stdin=subprocess.DEVNULL,
            )
            for role in roles
        ]
    )
