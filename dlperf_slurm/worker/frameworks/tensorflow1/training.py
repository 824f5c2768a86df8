"""Gradients of a step's batches and ranks -> their sum, their mean, and loss scaling."""

from contextlib import nullcontext
from typing import Any, Callable, ContextManager, Iterator, List, NamedTuple, Sequence, Union

import tensorflow as tf
from tensorflow.python.ops import collective_ops

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.frameworks.tensorflow.layers import make_variable
from dlperf_slurm.worker.frameworks.tensorflow.training import (
    BYTES_PER_PACK,
    ConstantLossScale,
    Exchange,
    Gradients,
    Update,
    join_horovod,
    multiply,
)
from dlperf_slurm.worker.frameworks.tensorflow1.device import format_device

LEADER = "/job:worker/replica:0/task:0"
GROUP_KEY = 1


class Accumulation(NamedTuple):
    """Gradients summed over a step's batches, and the operations on the sums.

    `gradients` include this batch. Run `keep` for a batch that is not the step's last, and `clear`
    with the last one.
    """

    gradients: List[tf.Tensor]
    keep: tf.Operation
    clear: tf.Operation


def accumulate_gradients(gradients: Sequence[tf.Tensor], batches_per_step: int) -> Accumulation:
    """Build the sums of gradients over a step's batches, and operations that keep and clear them.

    With one batch per step these are the given gradients, and operations that do nothing.
    """
    if batches_per_step == 1:
        return Accumulation(list(gradients), tf.no_op(), tf.no_op())
    sums = [
        make_variable(gradient.shape.as_list(), dtype=gradient.dtype, trainable=False)
        for gradient in gradients
    ]
    keep = tf.group(*[s.assign_add(g, read_value=False) for s, g in zip(sums, gradients)])
    totals = [s.read_value() + g for s, g in zip(sums, gradients)]
    with tf.control_dependencies(totals):
        clear = tf.group(*[s.assign(tf.zeros_like(s), read_value=False) for s in sums])
    return Accumulation(totals, keep, clear)


class LossScale:
    """Dynamic loss scale as in tf.train.experimental.

    Halved on overflow, doubled after GROWTH_STEPS finite steps.
    """

    INITIAL = 2.0**15
    GROWTH_STEPS = 2000

    def __init__(self) -> None:
        self.value = make_variable([], self.INITIAL, trainable=False)
        self._finite_steps = make_variable([], dtype=tf.int64, trainable=False)

    def scale(self, loss: tf.Tensor) -> tf.Tensor:
        return loss * self.value

    def unscale(self, gradients: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        return multiply(gradients, 1 / self.value)

    def apply(self, gradients: Sequence[tf.Tensor], update: Update) -> tf.Operation:
        """Build an operation that runs `update` on the unscaled gradients if all are finite.

        If not, the step is skipped and the scale halved. The scale is doubled after GROWTH_STEPS
        finite steps; the device decides, not the host.
        """
        gradients = self.unscale(gradients)
        is_finite = tf.reduce_all([is_all_finite(gradient) for gradient in gradients])

        def accept() -> tf.Operation:
            steps = self._finite_steps + 1
            is_due = tf.equal(steps, self.GROWTH_STEPS)
            return tf.group(
                update(gradients),
                self.value.assign(self.value * tf.where(is_due, 2.0, 1.0)),
                self._finite_steps.assign(tf.where(is_due, tf.zeros_like(steps), steps)),
            )

        def skip() -> tf.Operation:
            return tf.group(
                self.value.assign(tf.maximum(self.value / 2, 1.0)),
                self._finite_steps.assign(tf.zeros_like(self._finite_steps)),
            )

        return tf.group(tf.cond(is_finite, accept, skip))


def make_loss_scale(case: Case) -> Union[LossScale, ConstantLossScale]:
    if case.axes.precision == "amp-fp16" and not case.axes.constant_loss_scale:
        return LossScale()
    return ConstantLossScale(case.axes.constant_loss_scale or 1)


def is_all_finite(gradient: tf.Tensor) -> tf.Tensor:
    with tf.device(gradient.device):
        return tf.reduce_all(tf.math.is_finite(gradient))


class Distribution:
    """The tf.Session target, the device to build on, and the average over ranks.

    The counterpart for parameter servers is `ParameterServers`.
    """

    def __init__(self, target: str, device: str, average: Callable[[Gradients], Gradients]) -> None:
        self.target = target
        self.device = device
        # device of variables that exist once for all ranks, with parameter servers
        self.shared_device = device
        self._average = average

    def place_variables(self) -> ContextManager[Any]:
        """Return a context without effect to build the model in; variables stay on the device."""
        return nullcontext()

    def exchange(
        self, variables: Sequence[tf.Variable], gradients: Gradients, update: Update
    ) -> Exchange:
        """Build the average over ranks of a step's gradients, and the update; return both.

        `update` builds the optimizer's operation on the means.
        """
        means = self._average(gradients)
        return Exchange(means, update(means))

    def is_owner(self, variable: tf.Variable) -> bool:
        """Return True: each rank has to initialize all of its variables before the first step."""
        return True

    def build_start(self) -> tf.Operation:
        """Build the operation to run after variables are initialized, which does nothing here."""
        return tf.no_op()


def join_ranks(case: Case, rank_info: RankInfo, config: tf.compat.v1.ConfigProto) -> Distribution:
    """Join the ranks by Horovod or by a cluster of TensorFlow's gRPC servers, to average gradients.

    With a single rank nothing is averaged. May add settings to `config`, with which the session
    must be created.
    """
    device = format_device(case)
    if rank_info.world_size == 1:
        return Distribution("", device, list)
    if case.axes.gradient_sync == "horovod":
        return Distribution("", device, join_horovod(rank_info))
    return join_cluster(case, rank_info, device, config)


def join_cluster(
    case: Case, rank_info: RankInfo, device: str, config: tf.compat.v1.ConfigProto
) -> Distribution:
    """Join the ranks by gRPC servers; collectives, not parameter servers, average gradients.

    Adds settings to `config`, with which the session must be created. tf.distribute's
    MultiWorkerMirroredStrategy does the same, but in TensorFlow 1 it wants to run a whole training
    function, with a coordinator of its own.
    """
    config.experimental.collective_group_leader = LEADER
    config.experimental.collective_nccl = case.device == "cuda"
    # without the filter the master would wait for all ranks, and place operations on any of them
    config.device_filters.append(f"/job:worker/task:{rank_info.rank}")
    server = tf.distribute.Server(
        tf.train.ClusterSpec({"worker": list(rank_info.rank_addresses)}),
        job_name="worker",
        task_index=rank_info.rank,
        protocol="grpc",
        config=config,
    )

    def average(gradients: Gradients) -> Gradients:
        means: Gradients = []
        for instance_key, pack in enumerate(reversed(list(pack_gradients(gradients))), 1):
            flat = collective_ops.all_reduce(
                tf.concat([tf.reshape(gradient, [-1]) for gradient in pack], 0),
                group_size=rank_info.world_size,
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
        server.target, f"/job:worker/replica:0/task:{rank_info.rank}{device}", average
    )


def pack_gradients(gradients: Gradients) -> Iterator[Gradients]:
    """Yield groups of neighbouring gradients of at most BYTES_PER_PACK; a larger one is alone."""
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
