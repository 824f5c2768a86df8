"""Ranks -> a cluster whose servers hold the weights, which all ranks update together."""

from typing import Any, List, NamedTuple, Sequence

import tensorflow as tf

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.frameworks.tensorflow.layers import make_variable
from dlperf_slurm.worker.frameworks.tensorflow.parameter_servers import ServerGraph, join_servers
from dlperf_slurm.worker.frameworks.tensorflow.training import Gradients, make_optimizer
from dlperf_slurm.worker.frameworks.tensorflow2.loader import Tensors
from dlperf_slurm.worker.frameworks.tensorflow2.training import Differentiation
from dlperf_slurm.worker.servers import list_addresses
from dlperf_slurm.worker.work import Work


class ServerStep(NamedTuple):
    """The graph of a step: placeholders for a rank's gradients, the new weights, and the means.

    The means are those of the gradients over the ranks.
    """

    gradients: Gradients
    new_weights: List[tf.Tensor]
    means: Gradients


class ServerTraining:
    """Training by parameter servers, with the interface of Training.

    A rank's variables are copies of the weights. tf.distribute's ParameterServerStrategy has one
    coordinator, whose orders the ranks wait for. Here each rank computes its gradients as usual;
    then one run of a graph, in a tf.compat.v1.Session that is connected to the cluster, pushes the
    gradients and pulls the new weights. So no exchange overlaps the computation.
    """

    def __init__(
        self,
        case: Case,
        work: Work,
        rank_info: RankInfo,
        own: Sequence[tf.Variable],
        differentiation: Differentiation,
    ) -> None:
        self.loss_scale = differentiation.loss_scale
        self.differentiate = differentiation.differentiate
        self.accumulate = differentiation.accumulate
        self._own = own
        cluster = list_addresses(rank_info)
        # configuration of this process's server, which computes nothing
        config = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=case.cpus_per_rank,
            inter_op_parallelism_threads=case.cpus_per_rank,
            device_count={"GPU": 0},
        )
        target = join_servers(cluster, case.cpus_per_rank, config)
        graph = ServerGraph(cluster, "/device:CPU:0")
        with tf.Graph().as_default(), tf.device(graph.device):
            weights = make_weights(graph, own)
            self.optimizer = make_optimizer(work.rule, weights)
            norm = work.largest_norm
            step = build_step(graph, weights, self.optimizer, norm)
            variables = tf.compat.v1.global_variables()
            initializer = tf.compat.v1.variables_initializer(
                [variable for variable in variables if graph.is_owner(variable)]
            )
            start = graph.build_start()
            self._session = tf.compat.v1.Session(target, config=config)
        values = {new.initializer.inputs[1]: old.numpy() for new, old in zip(weights, own)}
        self._session.run(initializer, values if cluster.rank == 0 else {})
        self._session.run(start)
        self._step = self._session.make_callable(step.new_weights, step.gradients)
        self._average = self._session.make_callable(step.means, step.gradients)

    def set_learning_rate(self, learning_rate: float) -> None:
        initializer = self.optimizer.learning_rate.initializer
        self._session.run(initializer, {initializer.inputs[1]: learning_rate})

    def step(self, batch: Tensors) -> tf.Tensor:
        loss, gradients = self._compute_own_gradients(batch)
        for variable, weight in zip(self._own, self._step(*gradients)):
            variable.assign(weight)
        return loss

    def compute_gradients(self, batch: Tensors) -> List[Any]:
        _, gradients = self._compute_own_gradients(batch)
        means: List[Any] = self._average(*gradients)
        return means

    def _compute_own_gradients(self, batch: Tensors) -> Any:
        """Return a batch's loss, and a list of this rank's unscaled gradients as NumPy arrays."""
        loss, gradients = self.differentiate(batch)
        return loss, [gradient.numpy() for gradient in self.loss_scale.unscale(gradients)]


def make_weights(graph: ServerGraph, own: Sequence[tf.Variable]) -> List[tf.Variable]:
    """Create a variable of the same shape on a parameter server for each variable of `own`.

    Each goes to the server with the fewest bytes so far. Values are not copied.
    """
    weights = []
    for variable in own:
        with tf.device(graph.choose_server(variable)):
            weights.append(make_variable(variable.shape.as_list()))
    return weights


def build_step(
    graph: ServerGraph, weights: Sequence[tf.Variable], optimizer: Any, norm: Any
) -> ServerStep:
    """Build the exchange of gradients with the servers, and the servers' update of `weights`.

    `norm` is the global norm to which `optimizer` gets the mean gradients clipped, or None.
    """

    def clip_and_apply(means: Gradients) -> tf.Operation:
        used = means if norm is None else tf.clip_by_global_norm(means, norm)[0]
        return tf.group(*optimizer.apply(used))

    own = [tf.compat.v1.placeholder(tf.float32, weight.shape) for weight in weights]
    means, step = graph.exchange(weights, own, clip_and_apply)
    with tf.control_dependencies([step]):
        return ServerStep(own, [weight.read_value() for weight in weights], means)
