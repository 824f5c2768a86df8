"""Ranks -> a strategy to run a step under, and how its gradients become their mean."""

from typing import Callable, List, NamedTuple

import tensorflow as tf

from dlperf_slurm.contract.axes import PARAMETER_SERVER
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import Placement

Gradients = List[tf.Tensor]

# Gradients travel in packs of this size, the last layers' first while others are being computed.
BYTES_PER_PACK = 32 * 2**20


class Distribution(NamedTuple):
    """The strategy's scope is for the model; `average` is called under it in a step."""

    strategy: tf.distribute.Strategy
    average: Callable[[Gradients], Gradients]


def join_ranks(case: Case, placement: Placement) -> Distribution:
    """To be called before anything is computed, which would start TensorFlow without a cluster."""
    if placement.world_size == 1 or case.axes.distribution == PARAMETER_SERVER:
        return Distribution(tf.distribute.get_strategy(), list)
    if case.axes.distribution == "horovod":
        return join_horovod(placement)
    return join_cluster(case, placement)


def join_cluster(case: Case, placement: Placement) -> Distribution:
    """MultiWorkerMirroredStrategy: a gRPC server in each rank, one device per server."""
    kinds = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=BYTES_PER_PACK,
        implementation=kinds.NCCL if case.device == "cuda" else kinds.RING,
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        cluster_resolver=tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": list(placement.rank_addresses)}),
            task_type="worker",
            task_id=placement.rank,
            rpc_layer="grpc",
        ),
        communication_options=options,
    )

    def average(gradients: Gradients) -> Gradients:
        context = tf.distribute.get_replica_context()
        return list(context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients, options))

    return Distribution(strategy, average)


def join_horovod(placement: Placement) -> Distribution:
    """Horovod's own all-reduce of each gradient, which it fuses; no strategy."""
    import horovod.tensorflow as hvd

    hvd.init()
    if hvd.size() != placement.world_size:
        raise RuntimeError(
            f"Horovod sees {hvd.size()} rank(s), MPI {placement.world_size}: "
            "was it built for this MPI?"
        )

    def average(gradients: Gradients) -> Gradients:
        return [hvd.allreduce(gradient, op=hvd.Average) for gradient in gradients]

    return Distribution(tf.distribute.get_strategy(), average)
