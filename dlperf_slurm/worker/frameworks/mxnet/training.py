"""A case and its ranks -> what updates the weights: optimizer, sums over ranks, servers."""

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
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.horovod import join_horovod
from dlperf_slurm.worker.servers import WatchedServers
from dlperf_slurm.worker.update_rule import ADAMW, Rule

# Used instead of a learning rate of 0, by which Momentum would divide; too small to change a
# float32 weight.
LEAST_LEARNING_RATE = 1e-20
SERVER = "dlperf_slurm.worker.frameworks.mxnet.server"
# KVStore's number of a command to a server's Python code
CONTROLLER = 0
# keys from here on are only summed over the ranks, even if servers update the weights
FIRST_SUM = 2**24


class Momentum(mx.optimizer.SGD):
    """SGD with momentum, for a learning rate that may change.

    MXNet's momentum contains the learning rate. When the rate changes, the momentum of the first
    update is scaled by the ratio of the new rate to the old one.
    """

    def __init__(self, momentum: float, **options: Any) -> None:
        super().__init__(momentum=momentum, **options)
        self._plain_momentum = momentum
        # by the index of the first weight of a group that is updated at once
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

    Epsilon is added to the root of the corrected second moment. MXNet 1.9 has an operator for
    AdamW, but no optimizer class that uses it.
    """

    def __init__(self, beta1: float, beta2: float, epsilon: float, **options: Any) -> None:
        super().__init__(**options)
        # the betas in float32, as the operator uses them: in float32 1 - 0.999 is off by 1.3e-5,
        # which cancels if the bias correction uses the same value
        self.beta1 = float(numpy.float32(beta1))
        self.beta2 = float(numpy.float32(beta2))
        self.epsilon = epsilon

    def create_state(self, index: int, weight: mx.nd.NDArray) -> Tuple[Any, Any]:
        return mx.nd.zeros_like(weight), mx.nd.zeros_like(weight)

    def update(self, index: int, weight: Any, grad: Any, state: Tuple[Any, Any]) -> None:
        self._update_count(index)
        step = self._index_update_count[index]
        rate = self._get_lr(index)
        # The operator does not correct the bias. Correcting the moments is the same as to multiply
        # the learning rate by root / (1 - beta1^step) and epsilon by root.
        root = math.sqrt(1 - self.beta2**step)
        # The operator for many weights at once loses digits of the second moment: its first updates
        # are off by 3e-5.
        mx.nd.contrib.adamw_update(
            weight,
            grad,
            *state,
            rescale_grad=self.rescale_grad,
            lr=rate * root / (1 - self.beta1**step),
            # the operator multiplies the decay by eta, not by the learning rate
            wd=rate * self._get_wd(index),
            eta=1.0,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon * root,
            out=weight,
        )


def make_optimizer(rule: Rule, parameters: List[Parameter], scale: float) -> mx.optimizer.Optimizer:
    """Return the optimizer of a rule; `scale` turns summed gradients into their mean.

    The sums are over a step's batches, times the loss scale; `join_ranks` takes care of the ranks.
    Also sets which parameters decay.
    """
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
    """Set weight decay for matrices and kernels, not for biases and normalization weights.

    The latter are the parameters with one dimension. MXNet's default decays all parameters.
    """
    for parameter in parameters:
        parameter.wd_mult = 1.0 if len(parameter.shape) > 1 else 0.0


def clip_gradients(gradients: List[mx.nd.NDArray], largest_norm: float) -> None:
    """Scale all gradients in place so that their global norm is at most `largest_norm`.

    The norm stays on the device. Unlike Gluon's clip_global_norm, it is in float32 with mixed
    precision too: there AMP inserts a cast to float16 or bfloat16 before `mx.nd.dot`. The `dot`
    used here was imported before AMP did so.
    """
    squares = [dot(flat, flat) for flat in (gradient.reshape(-1) for gradient in gradients)]
    norm = mx.nd.sqrt(mx.nd.add_n(*squares))
    # Gluon adds the same epsilon; PyTorch adds 1e-6
    scale = mx.nd.minimum(largest_norm / (norm + 1e-8), 1)
    for gradient in gradients:
        gradient *= scale


class Ranks(NamedTuple):
    """The result of joining the ranks: trainer, sum of gradients, and this rank's servers.

    `sum_gradients` sums them over the ranks in place; `trainer._scale` turns the sums into means.
    """

    trainer: Trainer
    sum_gradients: Callable[[], None]
    servers: WatchedServers


def join_ranks(
    case: Case, rank_info: RankInfo, parameters: Dict[str, Parameter], optimizer: Any
) -> Ranks:
    """Join the ranks, by Horovod or parameter servers, and make Gluon's trainer for them.

    The servers sum gradients; for gradient_sync "parameter_server" they also update the weights.
    Without Horovod, the optimizer's `rescale_grad` is divided by the number of ranks, and a single
    rank has no servers.
    """
    if case.axes.gradient_sync == "horovod":
        import horovod.mxnet as hvd

        join_horovod(hvd, rank_info)
        trainer = hvd.DistributedTrainer(parameters, optimizer)
        return Ranks(trainer, trainer.allreduce_grads, WatchedServers([]))
    # Trainer only sums over the ranks; it takes the factor for the mean from the optimizer
    optimizer.rescale_grad /= rank_info.world_size
    if rank_info.world_size == 1:
        trainer = Trainer(parameters, optimizer, kvstore=None)
        return Ranks(trainer, trainer.allreduce_grads, WatchedServers([]))
    servers = start_servers(case, rank_info)
    is_on_servers = case.axes.gradient_sync == PARAMETER_SERVER
    trainer = Trainer(parameters, optimizer, kvstore="dist_sync", update_on_kvstore=is_on_servers)
    # The servers get the optimizer without the parameters, so that it needs their decay factors.
    optimizer.wd_mult = {i: parameter.wd_mult for i, parameter in enumerate(trainer._params)}
    # By default the trainer joins in its first step, and pushes gradients while initial weights are
    # still being pulled. A gradient may overtake: then a rank starts with a gradient as a weight.
    trainer._init_kvstore()
    trainer._init_params()
    mx.nd.waitall()
    if is_on_servers:
        return Ranks(trainer, ServerSums(trainer), servers)
    return Ranks(trainer, trainer.allreduce_grads, servers)


def set_learning_rate(trainer: Trainer, learning_rate: float) -> None:
    """Set the learning rate of the next update, on the rank or on the servers.

    The servers have then finished all earlier updates, and wait for every rank before the next one.
    """
    trainer.set_learning_rate(learning_rate)
    if trainer._update_on_kvstore:
        message = pickle.dumps(learning_rate, 0).decode()
        trainer._kvstore._send_command_to_servers(CONTROLLER, message)


class ServerSums:
    """Sums gradients over the ranks on servers that update the weights by other gradients."""

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


def start_servers(case: Case, rank_info: RankInfo) -> WatchedServers:
    """Start the node's parameter server if this rank is the node's first, and rank 0's scheduler.

    Returns these processes, of which there may be none; this process exits if one of them fails.
    """
    os.environ.update(
        DMLC_ROLE="worker",
        DMLC_PS_ROOT_URI=rank_info.master_address,
        DMLC_PS_ROOT_PORT=str(rank_info.master_port),
        DMLC_NUM_WORKER=str(rank_info.world_size),
        DMLC_NUM_SERVER=str(case.nodes),
        DMLC_NODE_HOST=rank_info.rank_addresses[rank_info.rank].rpartition(":")[0],
    )
    roles = ["scheduler"] if rank_info.rank == 0 else []
    roles += ["server"] if rank_info.local_rank == 0 else []
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
    """KVStore server that keeps the momentum when the learning rate changes; see FIRST_SUM."""

    updater: mx.optimizer.Updater

    def _controller(self) -> Callable[[int, bytes, Any], None]:
        """Return the handler of messages: an optimizer, or a new learning rate, from every rank."""

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
    """Serve as parameter server or scheduler, as DMLC_ROLE says, until all ranks have left."""
    Server(mx.kvstore.create("dist")).run()
