"""A case and its ranks -> what updates the weights: optimizer, sums over the ranks, servers."""

import math
import os
import pickle
import subprocess
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import mxnet as mx
import numpy
from mxnet.gluon import Parameter, Trainer
from mxnet.kvstore.kvstore_server import KVStoreServer
from mxnet.ndarray import dot

from dlperf_slurm.contract.axes import PARAMETER_SERVER
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.horovod import join_horovod
from dlperf_slurm.worker.servers import WatchedServers
from dlperf_slurm.worker.update_rule import ADAMW, Rule

# In the place of 0, by which a momentum that has the learning rate in it could not be divided; no
# weight of float32 changes by it.
LEAST_LEARNING_RATE = 1e-20
SERVER = "dlperf_slurm.worker.frameworks.mxnet.server"
# KVStore's name for a message to the Python of a server
CONTROLLER = 0
# From this key on there are sums only, whether weights are updated here or not.
FIRST_SUM = 2**24


class Momentum(mx.optimizer.SGD):
    """SGD with momentum, for a learning rate that may change.

    MXNet has the learning rate within the momentum that it keeps, so that the momentum of the first
    update at another one must be as many times as large.
    """

    def __init__(self, momentum: float, **options: Any) -> None:
        super().__init__(momentum=momentum, **options)
        self._plain_momentum = momentum
        # by the first of the weights that are updated at once
        self._last_rates: Dict[int, float] = {}

    def set_learning_rate(self, lr: float) -> None:
        super().set_learning_rate(max(lr, LEAST_LEARNING_RATE))

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        first = index[0] if isinstance(index, (list, tuple)) else index
        self.momentum = self._plain_momentum * self.lr / self._last_rates.get(first, self.lr)
        super().update_multi_precision(index, weight, grad, state)
        self._last_rates[first] = self.lr


class AdamW(mx.optimizer.Optimizer):
    """Adam with decoupled weight decay and bias correction (Loshchilov and Hutter 2019).

    Epsilon is added to the root of the corrected second moment. MXNet 1.9 has an operator for it,
    but no class that uses that.
    """

    def __init__(self, beta1: float, beta2: float, epsilon: float, **options: Any) -> None:
        super().__init__(**options)
        # as the operator has them: 1 - 0.999 is 1.3e-5 off in float32, which the correction undoes
        self.beta1 = float(numpy.float32(beta1))
        self.beta2 = float(numpy.float32(beta2))
        self.epsilon = epsilon

    def create_state(self, index: int, weight: mx.nd.NDArray) -> Tuple[Any, Any]:
        return mx.nd.zeros_like(weight), mx.nd.zeros_like(weight)

    def update(self, index: int, weight: Any, grad: Any, state: Tuple[Any, Any]) -> None:
        self._update_count(index)
        step = self._index_update_count[index]
        rate = self._get_lr(index)
        # The operator corrects no bias. To correct the moments is to multiply the learning rate
        # with root / (1 - beta1^step) and epsilon with root.
        root = math.sqrt(1 - self.beta2**step)
        # The operator for many weights at once loses digits of the second moment: its first
        # updates are 3e-5 off.
        mx.nd.contrib.adamw_update(
            weight,
            grad,
            *state,
            rescale_grad=self.rescale_grad,
            lr=rate * root / (1 - self.beta1**step),
            # it multiplies the decay with eta only
            wd=rate * self._get_wd(index),
            eta=1.0,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon * root,
            out=weight,
        )


def make_optimizer(rule: Rule, parameters: List[Parameter], scale: float) -> mx.optimizer.Optimizer:
    """`scale` makes the mean of the sums that it is given as gradients."""
    choose_decay(parameters)
    options = {
        "learning_rate": rule.learning_rate,
        "wd": rule.weight_decay,
        "rescale_grad": scale,
    }
    if rule.name == ADAMW:
        beta1, beta2 = rule.betas
        return AdamW(beta1=beta1, beta2=beta2, epsilon=rule.epsilon, **options)
    if rule.momentum:
        return Momentum(momentum=rule.momentum, **options)
    return mx.optimizer.SGD(**options)


def choose_decay(parameters: List[Parameter]) -> None:
    """Matrices and kernels decay, biases and normalizations do not.

    The latter are the parameters with one dimension. Left alone, MXNet decays all.
    """
    for parameter in parameters:
        parameter.wd_mult = 1.0 if len(parameter.shape) > 1 else 0.0


def clip_gradients(gradients: List[mx.nd.NDArray], largest_norm: float) -> None:
    """All scaled alike, in place, to have `largest_norm` together, if they have more.

    The norm is not read back. As Gluon's clip_global_norm, but in float32 with mixed precision too:
    there Gluon's squares are of float16 or bfloat16, as AMP puts casts before `mx.nd.dot`. The one
    used here was imported before that.
    """
    squares = [dot(flat, flat) for flat in (gradient.reshape(-1) for gradient in gradients)]
    norm = mx.nd.sqrt(mx.nd.add_n(*squares))
    # added by Gluon too; PyTorch adds 1e-6
    scale = mx.nd.minimum(largest_norm / (norm + 1e-8), 1)
    for gradient in gradients:
        gradient *= scale


class Ranks(NamedTuple):
    """`trainer._scale` makes the gradients' mean of what `sum_gradients` sums up in place."""

    trainer: Trainer
    sum_gradients: Callable[[], None]
    servers: WatchedServers


def join_ranks(
    case: Case, placement: Placement, parameters: Dict[str, Parameter], optimizer: Any
) -> Ranks:
    if case.axes.gradient_sync == "horovod":
        trainer = make_horovod_trainer(placement, parameters, optimizer)
        return Ranks(trainer, trainer.allreduce_grads, WatchedServers([]))
    # Trainer only sums over the ranks, and takes its scale from here.
    optimizer.rescale_grad /= placement.world_size
    if placement.world_size == 1:
        trainer = Trainer(parameters, optimizer, kvstore=None)
        return Ranks(trainer, trainer.allreduce_grads, WatchedServers([]))
    servers = start_servers(case, placement)
    is_on_servers = case.axes.gradient_sync == PARAMETER_SERVER
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

    join_horovod(hvd, placement)
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


class Server(KVStoreServer):
    """MXNet's, but a new learning rate leaves the momentum as it is, and see FIRST_SUM."""

    updater: mx.optimizer.Updater

    def _controller(self) -> Callable[[int, bytes, Any], None]:
        """What takes the messages: an optimizer from every rank, or its new learning rate."""

        def control(command: int, message: bytes, _: Any) -> None:
            content = pickle.loads(message)
            if isinstance(content, float):
                self.updater.optimizer.set_learning_rate(content)
            else:
                self.updater = mx.optimizer.get_updater(content)
                self.kvstore._set_updater(self._update)

        return control

    def _update(self, key: int, gradient: mx.nd.NDArray, weight: mx.nd.NDArray) -> None:
        if key < FIRST_SUM:
            self.updater(key, gradient, weight)
        else:
            gradient.copyto(weight)


def serve() -> None:
    """As a server or as the scheduler, until all ranks have left."""
    Server(mx.kvstore.create("dist")).run()
