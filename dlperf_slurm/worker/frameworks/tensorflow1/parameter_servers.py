"""Ranks -> a cluster whose servers hold the weights, which all ranks update together.

In each step a rank pulls the weights, and pushes its gradients while others are being computed. The
servers update by the mean, as the graph of rank 0 asks them to when all have pushed; the other
ranks wait for its token. So does tf.train.SyncReplicasOptimizer, but with one queue for the tokens
of all ranks, of which a fast one may take a slow one's, and with threads of its own.
"""

from typing import Any, Callable, ContextManager, List, Sequence

import tensorflow as tf

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.frameworks.tensorflow1.distribution import Exchange, Gradients, Update
from dlperf_slurm.worker.servers import Cluster, list_addresses, start_server

SERVER = "dlperf_slurm.worker.tensorflow_server"
# what is pushed late would be dropped: nothing is, as all ranks wait for each other
NEVER_LATE = 2**62


class ParameterServers:
    """In a Distribution's place."""

    def __init__(self, cluster: Cluster, target: str, device: str) -> None:
        self.target = target
        self.device = f"/job:worker/replica:0/task:{cluster.rank}{device}"
        self.shared_device = name_server(0)
        self._rank = cluster.rank
        self._others = range(1, len(cluster.ranks))
        self._world_size = len(cluster.ranks)
        self._server_bytes = [0] * len(cluster.servers)

    def place_variables(self) -> ContextManager[Any]:
        return tf.compat.v1.variable_creator_scope(self._create_variable)

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        """A weight goes to the server that has the fewest bytes so far; all else stays here.

        A rank reads it once in a run, however often the model does.
        """
        if not kwargs["trainable"]:
            return next_creator(**kwargs)
        value = kwargs["initial_value"]
        server = self._server_bytes.index(min(self._server_bytes))
        self._server_bytes[server] += value.shape.num_elements() * value.dtype.size
        kwargs["caching_device"] = self.device
        with tf.device(name_server(server)):
            return next_creator(**kwargs)

    def exchange(
        self, variables: Sequence[tf.Variable], gradients: Gradients, update: Update
    ) -> Exchange:
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
        return self._rank == 0 or not variable.device.startswith("/job:ps")

    def build_start(self) -> tf.Operation:
        """Nobody may use the weights before rank 0 has set them."""
        return self._let_go("started", []) if self._rank == 0 else self._wait("started")

    def _let_go(self, name: str, after: List[tf.Operation]) -> tf.Operation:
        queues = self._make_queues(name, [tf.bool], [[]])
        with tf.control_dependencies(after):
            return tf.group(*after, *[queue.enqueue(True) for queue in queues])

    def _wait(self, name: str) -> tf.Operation:
        return self._make_queues(name, [tf.bool], [[]])[self._rank - 1].dequeue().op

    def _make_queues(self, name: str, types: List[Any], shapes: List[Any]) -> List[Any]:
        """One for each rank but the first, which fills them."""
        with tf.device(self.shared_device):
            return [
                tf.queue.FIFOQueue(1, types, shapes, shared_name=f"{name}_{rank}")
                for rank in self._others
            ]


def join_servers(
    case: Case, placement: Placement, config: tf.compat.v1.ConfigProto
) -> ParameterServers:
    """Complete the config, which is for the session too."""
    cluster = list_addresses(placement)
    start_server(SERVER, cluster, case.cpus_per_rank)
    # else the session would wait for all ranks
    config.device_filters.extend(["/job:ps", f"/job:worker/task:{cluster.rank}"])
    server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster.list_jobs()),
        job_name="worker",
        task_index=cluster.rank,
        protocol="grpc",
        config=config,
    )
    device = "/device:GPU:0" if case.device == "cuda" else "/device:CPU:0"
    return ParameterServers(cluster, server.target, device)


def name_server(task: int) -> str:
    return f"/job:ps/replica:0/task:{task}/device:CPU:0"
