"""A batch -> this rank's gradients; and the step in which collectives make their mean of them."""

from typing import Any, Callable, List, Sequence, Tuple

import tensorflow as tf

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks.tensorflow2.accumulation import Accumulation
from dlperf_slurm.worker.frameworks.tensorflow2.distribution import Distribution
from dlperf_slurm.worker.frameworks.tensorflow2.optimizers import make_optimizer
from dlperf_slurm.worker.frameworks.tensorflow2.pipeline import Tensors
from dlperf_slurm.worker.frameworks.tensorflow2.scaling import make_loss_scale
from dlperf_slurm.worker.update_rule import make_rule

ComputeLoss = Callable[[Tensors], tf.Tensor]
Gradients = List[tf.Tensor]


class Differentiation:
    """`variables` are those of the model, `own` the same on this rank."""

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
        # the loss of a step's last batch, and the gradients of all, which are scaled
        self.differentiate = tf.function(differentiate, jit_compile=is_compiled)
        # the loss of another one, whose gradients are kept
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
    """Updates of a rank's variables by the mean of all ranks' gradients; each returns the loss."""

    def __init__(
        self,
        case: Case,
        definition: Any,
        distribution: Distribution,
        own: Sequence[tf.Variable],
        differentiation: Differentiation,
    ) -> None:
        self.optimizer = make_optimizer(make_rule(case, definition), own)
        self.loss_scale = differentiation.loss_scale
        self.differentiate = differentiation.differentiate
        self._clip_global_norm = definition.CLIP_GLOBAL_NORM if case.axes.clip_global_norm else None
        self._average = distribution.average

        # XLA compiles what lies before and after the all-reduce, which it does not know.
        self._update = tf.function(self._update_weights, jit_compile=case.axes.compiler == "xla")
        run = distribution.strategy.run
        self.step = tf.function(lambda batch: run(self._train, args=(batch,)))
        self.accumulate = tf.function(lambda batch: run(differentiation.accumulate, args=(batch,)))
        # the mean gradients, which nothing uses
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
            # exactly to the norm; PyTorch adds 1e-6 to what it divides by
            gradients, _ = tf.clip_by_global_norm(gradients, self._clip_global_norm)
        self.optimizer.apply(gradients)

    def _average_batch(self, batch: Tensors) -> Gradients:
        _, gradients = self.differentiate(batch)
        return self.loss_scale.unscale(self._average(gradients))
