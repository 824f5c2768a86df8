"""Ranks -> a cluster whose servers hold the weights, and the graph of their updates."""

from typing import Any, List, Sequence

import tensorflow as tf

from dlperf_slurm.worker.frameworks.tensorflow.training import Exchange, Gradients, Update
from dlperf_slurm.worker.servers import Cluster, start_server

SERVER = "dlperf_slurm.worker.frameworks.tensorflow.server"
# an accumulator drops gradients of older steps; with this step number none is older
NEVER_LATE = 2**62


class ServerGraph:
    """The part of a graph with which ranks and parameter servers exchange gradients and weights.

    Rank 0's graph makes the servers update the weights by the mean gradients when all ranks have
    pushed theirs; every other rank waits for a token.
    """

    def __init__(self, cluster: Cluster, device: str) -> None:
        self.device = f"/job:worker/replica:0/task:{cluster.rank}{device}"
        self.shared_device = format_server_device(0)
        self._rank = cluster.rank
        self._world_size = len(cluster.ranks)
        self._server_bytes = [0] * len(cluster.servers)

    def choose_server(self, value: Any) -> str:
        """Return the device of the server with the fewest bytes so far, to place a weight there.

        `value` has the weight's shape and type.
        """
        server = self._server_bytes.index(min(self._server_bytes))
        self._server_bytes[server] += value.shape.num_elements() * value.dtype.size
        return format_server_device(server)

    def exchange(
        self, variables: Sequence[tf.Variable], gradients: Gradients, update: Update
    ) -> Exchange:
        """Build the average over ranks of a step's gradients, and the update; return both.

        `update` builds the optimizer's operation on the means, in rank 0's graph only: the other
        ranks take the means from a queue, and their step waits until the weights are updated.
        """
        pushes, means = [], []
        for number, (variable, gradient) in enumerate(zip(variables, gradients)):
            with tf.device(variable.device):
                pushed = tf.compat.v1.ConditionalAccumulator(
                    gradient.dtype, gradient.shape, shared_name=f"gradient_{number}"
                )
                pushes.append(pushed.apply_grad(gradient, local_step=NEVER_LATE))
                if self._rank == 0:
                    means.append(pushed.take_grad(self._world_size))
        types = [gradient.dtype for gradient in gradients]
        shapes = [gradient.shape for gradient in gradients]
        queues = self._make_queues("mean", types, shapes)
        if self._rank == 0:
            step = tf.group(*pushes, self._let_go("updated", [update(means)]))
            with tf.control_dependencies([*pushes, *[queue.enqueue(means) for queue in queues]]):
                return Exchange([tf.identity(mean) for mean in means], step)
        with tf.control_dependencies(pushes):
            return Exchange(queues[self._rank - 1].dequeue(), self._wait("updated"))

    def is_owner(self, variable: tf.Variable) -> bool:
        """Return whether this rank has to initialize a variable: a server's is rank 0's."""
        return self._rank == 0 or not variable.device.startswith("/job:ps")

    def build_start(self) -> tf.Operation:
        """Build a barrier, to run after initialization: other ranks wait for rank 0's weights."""
        return self._let_go("started", []) if self._rank == 0 else self._wait("started")

    def _let_go(self, name: str, after: List[tf.Operation]) -> tf.Operation:
        queues = self._make_queues(name, [tf.bool], [[]])
        with tf.control_dependencies(after):
            return tf.group(*after, *[queue.enqueue(True) for queue in queues])

    def _wait(self, name: str) -> tf.Operation:
        return self._make_queues(name, [tf.bool], [[]])[self._rank - 1].dequeue().op

    def _make_queues(self, name: str, types: List[Any], shapes: List[Any]) -> List[Any]:
        """Make a queue for each rank but the first, shared by `name`; rank 0 fills them.

        An element is a tuple of tensors of these types and shapes.
        """
        with tf.device(self.shared_device):
            return [
                tf.queue.FIFOQueue(1, types, shapes, shared_name=f"{name}_{rank}")
                for rank in range(1, self._world_size)
            ]


def join_servers(cluster: Cluster, threads: int, config: tf.compat.v1.ConfigProto) -> str:
    """Start this rank's parameter server if it has one, join the cluster, return the target.

    The target is for a tf.Session; `threads` is the server's thread count. Adds device filters to
    `config`, with which the session must be created. Raises RuntimeError if this rank's server ends
    before it listens.
    """
    start_server(SERVER, cluster, threads)
    # without the filters a session would wait for all ranks
    config.device_filters.extend(["/job:ps", f"/job:worker/task:{cluster.rank}"])
    server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster.list_jobs()),
        job_name="worker",
        task_index=cluster.rank,
        protocol="grpc",
        config=config,
    )
    return str(server.target)


def format_server_device(task: int) -> str:
    """Return TensorFlow's name of the CPU of parameter server number `task`."""
    return f"/job:ps/replica:0/task:{task}/device:CPU:0"
