"""A batch -> this rank's gradients, and the training step that averages them by collectives."""

from typing import Any, Callable, List, NamedTuple, Sequence, Tuple, Union

import tensorflow as tf

from dlperf_slurm.contract.axes import PARAMETER_SERVER
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.frameworks.tensorflow.training import (
    BYTES_PER_PACK,
    ConstantLossScale,
    Gradients,
    Update,
    join_horovod,
    make_optimizer,
    make_slots,
)
from dlperf_slurm.worker.frameworks.tensorflow2.loader import Tensors
from dlperf_slurm.worker.work import Work

ComputeLoss = Callable[[Tensors], tf.Tensor]


class Distribution(NamedTuple):
    """The tf.distribute strategy in whose scope to build the model, and the average over ranks.

    `average` replaces a step's gradients by their means over the ranks.
    """

    strategy: tf.distribute.Strategy
    average: Callable[[Gradients], Gradients]


def join_ranks(case: Case, rank_info: RankInfo) -> Distribution:
    """Join the ranks by Horovod or MultiWorkerMirroredStrategy, to average gradients.

    For a single rank, and for parameter servers, which average themselves, the Distribution
    averages nothing. Call this before TensorFlow computes anything: a first computation would start
    TensorFlow without a cluster.
    """
    if rank_info.world_size == 1 or case.axes.gradient_sync == PARAMETER_SERVER:
        return Distribution(tf.distribute.get_strategy(), list)
    if case.axes.gradient_sync == "horovod":
        return Distribution(tf.distribute.get_strategy(), join_horovod(rank_info))
    return join_cluster(case, rank_info)


def join_cluster(case: Case, rank_info: RankInfo) -> Distribution:
    """Join the ranks by MultiWorkerMirroredStrategy, which averages by NCCL or a ring.

    Each rank runs a gRPC server, and has one device.
    """
    kinds = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=BYTES_PER_PACK,
        implementation=kinds.NCCL if case.device == "cuda" else kinds.RING,
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        cluster_resolver=tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": list(rank_info.rank_addresses)}),
            task_type="worker",
            task_id=rank_info.rank,
            rpc_layer="grpc",
        ),
        communication_options=options,
    )

    def average(gradients: Gradients) -> Gradients:
        context = tf.distribute.get_replica_context()
        return list(context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients, options))

    return Distribution(strategy, average)


class LossScale:
    """Dynamic loss scale as in Keras' LossScaleOptimizer.

    Halved on overflow, doubled after GROWTH_STEPS finite steps.
    """

    INITIAL = 2.0**15
    GROWTH_STEPS = 2000

    def __init__(self) -> None:
        self.value = tf.Variable(self.INITIAL, trainable=False)
        # TensorFlow keeps int32 variables on the host, out of reach of what XLA compiles for a GPU
        self._finite_steps = tf.Variable(0, trainable=False, dtype=tf.int64)

    def scale(self, loss: tf.Tensor) -> tf.Tensor:
        return loss * self.value

    def unscale(self, gradients: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        return [gradient / self.value for gradient in gradients]

    def apply(self, gradients: Sequence[tf.Tensor], update: Update) -> None:
        """Run `update` on the unscaled gradients if all are finite, else skip the step.

        The scale is halved at a skip, and doubled after GROWTH_STEPS finite steps; the device
        decides, not the host.
        """
        gradients = self.unscale(gradients)
        is_finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradients])

        def accept() -> None:
            update(gradients)
            steps = self._finite_steps.assign_add(1)
            if steps == self.GROWTH_STEPS:
                self.value.assign(self.value * 2)
                self._finite_steps.assign(0)

        def skip() -> None:
            self.value.assign(tf.maximum(self.value / 2, 1.0))
            self._finite_steps.assign(0)

        tf.cond(is_finite, accept, skip)


def make_loss_scale(case: Case) -> Union[LossScale, ConstantLossScale]:
    if case.axes.precision == "amp-fp16" and not case.axes.constant_loss_scale:
        return LossScale()
    return ConstantLossScale(case.axes.constant_loss_scale or 1)


class Accumulation:
    """Gradients of a step's batches, summed on their rank until the last batch."""

    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        self._sums = make_slots(variables)

    def keep(self, gradients: Sequence[tf.Tensor]) -> None:
        for total, gradient in zip(self._sums, gradients):
            total.assign_add(gradient)

    def take(self, gradients: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        """Return the sums including `gradients`, those of the last batch; reset the sums."""
        totals = [total + gradient for total, gradient in zip(self._sums, gradients)]
        for total in self._sums:
            total.assign(tf.zeros_like(total))
        return totals


class Differentiation:
    """Compiled functions that compute a batch's loss and this rank's gradients.

    `variables` are the model's; `own` are the same variables on this rank.
    """

    def __init__(
        self, case: Case, variables: Sequence[Any], own: Sequence[tf.Variable], loss: ComputeLoss
    ) -> None:
        self.loss_scale = make_loss_scale(case)
        self._compute_loss = loss
        self._variables = variables
        self._batches_per_step = case.axes.gradient_accumulation
        differentiate = self._differentiate_batch
        if self._batches_per_step > 1:
            self._accumulation = Accumulation(own)
            differentiate = self._differentiate_last
        is_compiled = case.axes.compiler == "xla"
        # batch -> the loss of a step's last batch, and the scaled gradients of all its batches
        self.differentiate = tf.function(differentiate, jit_compile=is_compiled)
        # batch -> the loss of an earlier batch, whose gradients are kept
        self.accumulate = tf.function(self._differentiate_and_keep, jit_compile=is_compiled)

    def _differentiate_batch(self, batch: Tensors) -> Tuple[tf.Tensor, Gradients]:
        with tf.GradientTape() as tape:
            loss = self._compute_loss(batch)
            scaled = self.loss_scale.scale(loss)
            if self._batches_per_step > 1:
                scaled = scaled / self._batches_per_step
        return loss, tape.gradient(scaled, self._variables)

    def _differentiate_and_keep(self, batch: Tensors) -> tf.Tensor:
        loss, gradients = self._differentiate_batch(batch)
        self._accumulation.keep(gradients)
        return loss

    def _differentiate_last(self, batch: Tensors) -> Tuple[tf.Tensor, Gradients]:
        loss, gradients = self._differentiate_batch(batch)
        return loss, self._accumulation.take(gradients)


class Training:
    """Updates of this rank's variables by the mean of all ranks' gradients; return the loss."""

    def __init__(
        self,
        case: Case,
        work: Work,
        distribution: Distribution,
        own: Sequence[tf.Variable],
        differentiation: Differentiation,
    ) -> None:
        self.optimizer = make_optimizer(work.rule, own)
        self.loss_scale = differentiation.loss_scale
        self.differentiate = differentiation.differentiate
        self._clip_global_norm = work.largest_norm
        self._average = distribution.average

        # XLA compiles what is before and after the all-reduce, which it does not support.
        self._update = tf.function(self._update_weights, jit_compile=case.axes.compiler == "xla")
        run = distribution.strategy.run
        self.step = tf.function(lambda batch: run(self._train, args=(batch,)))
        self.accumulate = tf.function(lambda batch: run(differentiation.accumulate, args=(batch,)))
        # batch -> the mean gradients, which update nothing
        self.compute_gradients = tf.function(lambda batch: run(self._average_batch, args=(batch,)))

    def set_learning_rate(self, learning_rate: float) -> None:
        self.optimizer.learning_rate.assign(learning_rate)

    def _train(self, batch: Tensors) -> tf.Tensor:
        loss, gradients = self.differentiate(batch)
        self._update(self._average(gradients))
        return loss

    def _update_weights(self, gradients: Gradients) -> None:
        self.loss_scale.apply(gradients, self._clip_and_apply)

    def _clip_and_apply(self, gradients: Sequence[tf.Tensor]) -> None:
        if self._clip_global_norm is not None:
            # clips exactly to the norm; PyTorch adds 1e-6 to the divisor
            gradients, _ = tf.clip_by_global_norm(gradients, self._clip_global_norm)
        self.optimizer.apply(gradients)

    def _average_batch(self, batch: Tensors) -> Gradients:
        _, gradients = self.differentiate(batch)
        return self.loss_scale.unscale(self._average(gradients))
