"""Ranks -> a cluster whose servers hold the weights, which all ranks update together."""

from typing import Any, Callable, ContextManager

import tensorflow as tf

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.frameworks.tensorflow.parameter_servers import ServerGraph, join_servers
from dlperf_slurm.worker.frameworks.tensorflow1.device import format_device
from dlperf_slurm.worker.servers import Cluster, list_addresses


class ParameterServers(ServerGraph):
    """Average of gradients by parameter servers, with the interface of Distribution.

    In each step a rank pulls the weights, and pushes its gradients while others are still being
    computed. tf.train.SyncReplicasOptimizer does the same, but it has threads of its own, and one
    token queue for all ranks, from which a fast rank may take a slow one's token.
    """

    def __init__(self, cluster: Cluster, target: str, device: str) -> None:
        super().__init__(cluster, device)
        self.target = target

    def place_variables(self) -> ContextManager[Any]:
        return tf.compat.v1.variable_creator_scope(self._create_variable)

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        """Create a variable by `next_creator`, a weight on a server, any other on this rank.

        A rank caches the weight: it reads the weight once per run, however often the model does.
        """
        if not kwargs["trainable"]:
            return next_creator(**kwargs)
        kwargs["caching_device"] = self.device
        with tf.device(self.choose_server(kwargs["initial_value"])):
            return next_creator(**kwargs)


def join_parameter_servers(
    case: Case, rank_info: RankInfo, config: tf.compat.v1.ConfigProto
) -> ParameterServers:
    """Start this rank's parameter server, if it has one, and join the cluster of all of them.

    Adds device filters to `config`, with which the session must be created. Waits until this rank's
    own server listens, for no other rank; raises RuntimeError if the server ends before that.
    """
    cluster = list_addresses(rank_info)
    target = join_servers(cluster, case.cpus_per_rank, config)
    return ParameterServers(cluster, target, format_device(case))
