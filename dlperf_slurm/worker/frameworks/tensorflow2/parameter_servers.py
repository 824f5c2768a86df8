"""Ranks -> a cluster whose servers hold the weights, which all ranks update together.

tf.distribute's ParameterServerStrategy has one coordinator, and ranks that wait for its orders.
Here each rank computes its gradients as ever, pushes them, and pulls the weights that follow, in
one run of a graph in a tf.compat.v1.Session, which knows the cluster; so nothing of that runs
beside the computation. Servers update by the mean, as the graph of rank 0 asks them to when all
ranks have pushed; each other rank waits for its token.
"""

from typing import Any, List, NamedTuple, Sequence

import tensorflow as tf

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.frameworks.tensorflow2.optimizers import make_optimizer
from dlperf_slurm.worker.frameworks.tensorflow2.pipeline import Tensors
from dlperf_slurm.worker.frameworks.tensorflow2.training import Differentiation, Gradients
from dlperf_slurm.worker.servers import Cluster, list_addresses, start_server
from dlperf_slurm.worker.update_rule import make_rule

SERVER = "dlperf_slurm.worker.tensorflow_server"
# what is pushed late would be dropped: nothing is, as all ranks wait for each other
NEVER_LATE = 2**62


class Exchange(NamedTuple):
    """Fed with a rank's gradients, the weights after the step, or the mean that nothing uses."""

    gradients: Gradients
    new_weights: List[tf.Tensor]
    means: Gradients


class ServerTraining:
    """In a Training's place: a rank's own variables are copies of the servers' weights."""

    def __init__(
        self,
        case: Case,
        definition: Any,
        placement: Placement,
        own: Sequence[tf.Variable],
        differentiation: Differentiation,
    ) -> None:
        self.loss_scale = differentiation.loss_scale
        self.differentiate = differentiation.differentiate
        self.accumulate = differentiation.accumulate
        self._own = own
        cluster = list_addresses(placement)
        start_server(SERVER, cluster, case.cpus_per_rank)
        builder = GraphBuilder(cluster)
        with tf.Graph().as_default(), tf.device(builder.device):
            weights = builder.make_weights(own)
            self.optimizer = make_optimizer(make_rule(case, definition), weights)
            norm = definition.CLIP_GLOBAL_NORM if case.axes.clip_global_norm else None
            exchange = builder.build_exchange(weights, self.optimizer, norm)
            variables = tf.compat.v1.global_variables()
            initializer = tf.compat.v1.variables_initializer(
                [variable for variable in variables if builder.is_owner(variable)]
            )
            start = builder.build_start()
            self._session = start_session(case, cluster)
        values = {new.initializer.inputs[1]: old.numpy() for new, old in zip(weights, own)}
        self._session.run(initializer, values if cluster.rank == 0 else {})
        self._session.run(start)
        self._step = self._session.make_callable(exchange.new_weights, exchange.gradients)
        self._average = self._session.make_callable(exchange.means, exchange.gradients)

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
        """The loss, and arrays without the loss scale."""
        loss, gradients = self.differentiate(batch)
        return loss, [gradient.numpy() for gradient in self.loss_scale.unscale(gradients)]


class GraphBuilder:
    """Builds the same on all ranks, but for what only rank 0 does."""

    def __init__(self, cluster: Cluster) -> None:
        self.device = f"/job:worker/replica:0/task:{cluster.rank}/device:CPU:0"
        self._rank = cluster.rank
        self._world_size = len(cluster.ranks)
        self._server_bytes = [0] * len(cluster.servers)

    def make_weights(self, own: Sequence[tf.Variable]) -> List[tf.Variable]:
        """Each is on the server that has the fewest bytes so far."""
        weights = []
        for variable in own:
            server = self._server_bytes.index(min(self._server_bytes))
            self._server_bytes[server] += variable.shape.num_elements() * variable.dtype.size
            with tf.device(name_server(server)):
                weights.append(tf.compat.v1.Variable(tf.zeros(variable.shape), use_resource=True))
        return weights

    def build_exchange(self, weights: Sequence[tf.Variable], optimizer: Any, norm: Any) -> Exchange:
        """`norm` is what the mean is clipped to, or None."""
        own = [tf.compat.v1.placeholder(tf.float32, weight.shape) for weight in weights]
        pushes, means = [], []
        for number, (weight, gradient) in enumerate(zip(weights, own)):
            with tf.device(weight.device):
                pushed = tf.compat.v1.ConditionalAccumulator(
                    tf.float32, weight.shape, shared_name=f"gradient_{number}"
                )
                pushes.append(pushed.apply_grad(gradient, local_step=NEVER_LATE))
                if self._rank == 0:
                    means.append(pushed.take_grad(self._world_size))
        queues = self._make_queues("mean", [weight.shape for weight in weights], tf.float32)
        if self._rank == 0:
            used = means if norm is None else tf.clip_by_global_norm(means, norm)[0]
            step = tf.group(*pushes, self._let_go("updated", optimizer.apply(used)))
            with tf.control_dependencies([*pushes, *[queue.enqueue(means) for queue in queues]]):
                means = [tf.identity(mean) for mean in means]
        else:
            with tf.control_dependencies(pushes):
                step = self._wait("updated")
                means = queues[self._rank - 1].dequeue()
        with tf.control_dependencies([step]):
            return Exchange(own, [weight.read_value() for weight in weights], means)

    def is_owner(self, variable: tf.Variable) -> bool:
        return self._rank == 0 or not variable.device.startswith("/job:ps")

    def build_start(self) -> tf.Operation:
        """Nobody may use the weights before rank 0 has set them."""
        return self._let_go("started", []) if self._rank == 0 else self._wait("started")

    def _let_go(self, name: str, after: List[tf.Operation]) -> tf.Operation:
        queues = self._make_queues(name, [[]], tf.bool)
        with tf.control_dependencies(after):
            return tf.group(*after, *[queue.enqueue(True) for queue in queues])

    def _wait(self, name: str) -> tf.Operation:
        return self._make_queues(name, [[]], tf.bool)[self._rank - 1].dequeue().op

    def _make_queues(self, name: str, shapes: List[Any], dtype: tf.DType) -> List[Any]:
        """One for each rank but the first, which fills them."""
        with tf.device(name_server(0)):
            return [
                tf.queue.FIFOQueue(1, [dtype] * len(shapes), shapes, shared_name=f"{name}_{rank}")
                for rank in range(1, self._world_size)
            ]


def start_session(case: Case, cluster: Cluster) -> tf.compat.v1.Session:
    """For the default graph, at a server in this process, which computes nothing."""
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=case.cpus_per_rank,
        inter_op_parallelism_threads=case.cpus_per_rank,
        device_count={"GPU": 0},
        # else the session would wait for all ranks
        device_filters=["/job:ps", f"/job:worker/task:{cluster.rank}"],
    )
    spec = tf.train.ClusterSpec(cluster.list_jobs())
    server = tf.distribute.Server(spec, "worker", cluster.rank, protocol="grpc", config=config)
    return tf.compat.v1.Session(server.target, config=config)


def name_server(task: int) -> str:
    return f"/job:ps/replica:0/task:{task}/device:CPU:0"
