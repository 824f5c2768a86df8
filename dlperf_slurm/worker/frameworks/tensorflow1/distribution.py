"""Ranks -> where a session finds its device, and how gradients become their mean over the ranks."""

from contextlib import nullcontext
from typing import Any, Callable, ContextManager, Iterator, List, NamedTuple, Sequence

import tensorflow as tf
from tensorflow.python.ops import collective_ops

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import Placement

Gradients = List[tf.Tensor]
Update = Callable[[Gradients], tf.Operation]

# Gradients travel in packs of this size, the last layers' first while others are being computed.
BYTES_PER_PACK = 32 * 2**20
LEADER = "/job:worker/replica:0/task:0"
GROUP_KEY = 1


class Exchange(NamedTuple):
    """The means over the ranks, for proofs, and a step's update by them."""

    means: Gradients
    step: tf.Operation


class Distribution:
    """What tf.Session takes for its target, the device to build on, and the all-reduce."""

    def __init__(self, target: str, device: str, average: Callable[[Gradients], Gradients]) -> None:
        self.target = target
        self.device = device
        # of what there is once for all ranks, where there is such a thing
        self.shared_device = device
        self._average = average

    def place_variables(self) -> ContextManager[Any]:
        """For the model to be built within: its variables are on the device of all else."""
        return nullcontext()

    def exchange(
        self, variables: Sequence[tf.Variable], gradients: Gradients, update: Update
    ) -> Exchange:
        """Part of a step: `update` makes an operation of the mean gradients."""
        means = self._average(gradients)
        return Exchange(means, update(means))

    def is_owner(self, variable: tf.Variable) -> bool:
        """Whether this rank is to set the variable before the first step."""
        return True

    def build_start(self) -> tf.Operation:
        """What is to be run when the rank has set its variables: nothing to wait for."""
        return tf.no_op()


def join_ranks(case: Case, placement: Placement, config: tf.compat.v1.ConfigProto) -> Distribution:
    """Complete the config, which is for the session too."""
    device = "/device:GPU:0" if case.device == "cuda" else "/device:CPU:0"
    if placement.world_size == 1:
        return Distribution("", device, list)
    if case.axes.distribution == "horovod":
        return join_horovod(placement, device)
    return join_cluster(case, placement, device, config)


def join_cluster(
    case: Case, placement: Placement, device: str, config: tf.compat.v1.ConfigProto
) -> Distribution:
    """A gRPC server in each rank, whose graphs meet in collective operations only.

    As tf.distribute's MultiWorkerMirroredStrategy does, which in TensorFlow 1 wants to run a
    function of a whole training, with a coordinator of its own.
    """
    config.experimental.collective_group_leader = LEADER
    config.experimental.collective_nccl = case.device == "cuda"
    # else the master would wait for all ranks, and place operations on any
    config.device_filters.append(f"/job:worker/task:{placement.rank}")
    server = tf.distribute.Server(
        tf.train.ClusterSpec({"worker": list(placement.rank_addresses)}),
        job_name="worker",
        task_index=placement.rank,
        protocol="grpc",
        config=config,
    )

    def average(gradients: Gradients) -> Gradients:
        means: Gradients = []
        for instance_key, pack in enumerate(reversed(list(pack_gradients(gradients))), 1):
            flat = collective_ops.all_reduce(
                tf.concat([tf.reshape(gradient, [-1]) for gradient in pack], 0),
                group_size=placement.world_size,
                group_key=GROUP_KEY,
                instance_key=instance_key,
                merge_op="Add",
                final_op="Div",
                communication_hint="nccl" if case.device == "cuda" else "ring",
            )
            parts = tf.split(flat, [gradient.shape.num_elements() for gradient in pack])
            means[:0] = [tf.reshape(part, g.shape) for part, g in zip(parts, pack)]
        return means

    return Distribution(
        server.target, f"/job:worker/replica:0/task:{placement.rank}{device}", average
    )


def pack_gradients(gradients: Gradients) -> Iterator[Gradients]:
    """Neighbours together, up to BYTES_PER_PACK unless one alone is larger."""
    pack: Gradients = []
    pack_bytes = 0
    for gradient in gradients:
        gradient_bytes = gradient.shape.num_elements() * gradient.dtype.size
        if pack and pack_bytes + gradient_bytes > BYTES_PER_PACK:
            yield pack
            pack, pack_bytes = [], 0
        pack.append(gradient)
        pack_bytes += gradient_bytes
    yield pack


def join_horovod(placement: Placement, device: str) -> Distribution:
    """Horovod's own all-reduce of each gradient, which it fuses; no server."""
    import horovod.tensorflow as hvd

    hvd.init()
    if hvd.size() != placement.world_size:
        raise RuntimeError(
            f"Horovod sees {hvd.size()} rank(s), MPI {placement.world_size}: "
            "was it built for this MPI?"
        )

    def average(gradients: Gradients) -> Gradients:
        return [hvd.allreduce(gradient, op=hvd.Average) for gradient in gradients]

    return Distribution("", device, average)
