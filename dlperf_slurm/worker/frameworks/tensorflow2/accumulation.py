"""The gradients of a step's batches, added up on their rank until the last one."""

from typing import List, Sequence

import tensorflow as tf

from dlperf_slurm.worker.frameworks.tensorflow2.optimizers import make_slots


class Accumulation:
    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        self._sums = make_slots(variables)

    def keep(self, gradients: Sequence[tf.Tensor]) -> None:
        for total, gradient in zip(self._sums, gradients):
            total.assign_add(gradient)

    def take(self, gradients: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        """With these, which are of the last batch; the next step begins anew."""
        totals = [total + gradient for total, gradient in zip(self._sums, gradients)]
        for total in self._sums:
            total.assign(tf.zeros_like(total))
        return totals
