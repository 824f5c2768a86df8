"""One batch's gradients -> those of a step of several batches, which are kept on the rank."""

from typing import List, NamedTuple, Sequence

import tensorflow as tf

from dlperf_slurm.worker.frameworks.tensorflow1.layers import make_variable


class Accumulation(NamedTuple):
    """`gradients` have this batch added; `keep` is for a batch that is not the step's last.

    `clear` is to be run with the last one.
    """

    gradients: List[tf.Tensor]
    keep: tf.Operation
    clear: tf.Operation


def accumulate_gradients(gradients: Sequence[tf.Tensor], batches_per_step: int) -> Accumulation:
    """A step of one batch has nothing to keep."""
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
