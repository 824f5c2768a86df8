"""Settings -> ResNet-50 v1.5 as tensorpack's ModelDesc, of tensorpack's own layers.

Its parameters and its update are those of the framework-neutral definition. Two things differ:
SAME padding of an even size with a stride of 2 is (0, 1), and the initial weights are drawn by
TensorFlow.
"""

import contextlib
from typing import ContextManager, List

import tensorflow as tf
from tensorpack.models import (
    BatchNorm,
    Conv2D,
    FullyConnected,
    GlobalAvgPooling,
    MaxPooling,
    regularize_cost,
)
from tensorpack.tfutils import argscope
from tensorpack.train import ModelDesc

from dlperf_slurm.worker.scripts.tensorpack import Settings


class ResNet50(ModelDesc):
    """uint8 images [batch, height, width, 3] and int32 labels [batch] -> the cost of a tower."""

    def __init__(self, settings: Settings, global_batch_size: int) -> None:
        super().__init__()
        self._settings = settings
        self._definition = settings.definition
        self._global_batch_size = global_batch_size

    def inputs(self) -> List[tf.TensorSpec]:
        shape = self._settings.image_shape
        return [
            tf.TensorSpec(shape, tf.uint8, "images"),
            tf.TensorSpec(shape[:1], tf.int32, "labels"),
        ]

    def build_graph(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        logits = self._compute_logits(images)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=labels)
        # only matrices and convolution kernels, which tensorpack calls W
        decay = regularize_cost("W$", self._compute_decay)
        return tf.add(tf.reduce_mean(losses), decay, name="cost")

    def _compute_decay(self, weight: tf.Tensor) -> tf.Tensor:
        """Compute the loss whose gradient is the weight times the decay."""
        return self._definition.RULE.weight_decay * tf.nn.l2_loss(weight)

    def optimizer(self) -> tf.compat.v1.train.Optimizer:
        rule = self._definition.make_rule(self._global_batch_size)
        return tf.compat.v1.train.MomentumOptimizer(rule.learning_rate, rule.momentum)

    def _compute_logits(self, images: tf.Tensor) -> tf.Tensor:
        definition = self._definition
        data_format = self._settings.data_format
        # maps 0 to -1, so that a constant batch of zeros has gradients
        x = tf.cast(images, tf.float32) / 127.5 - 1
        if data_format == "channels_first":
            x = tf.transpose(x, [0, 3, 1, 2])
        with contextlib.ExitStack() as defaults:
            for scope in self._list_defaults(data_format):
                defaults.enter_context(scope)
            x = tf.nn.relu(_convolve("stem", x, definition.width, 7, 2))
            x = MaxPooling("pool", x, 3, strides=2, padding="same")
            for stage, blocks in enumerate(definition.stage_blocks):
                for block in range(blocks):
                    stride = 2 if block == 0 and stage > 0 else 1
                    with tf.compat.v1.variable_scope(f"stage{stage}_block{block}"):
                        x = self._add_bottleneck(x, definition.width * 2**stage, stride, block == 0)
            x = GlobalAvgPooling("average", x)
        start = tf.compat.v1.random_normal_initializer(
            stddev=definition.CLASSIFIER_STANDARD_DEVIATION
        )
        return FullyConnected("classifier", x, definition.classes, kernel_initializer=start)

    def _list_defaults(self, data_format: str) -> List[ContextManager[None]]:
        """List tensorpack's argument scopes, contexts that set the defaults of kinds of layers."""
        definition = self._definition
        start = tf.compat.v1.variance_scaling_initializer(2.0, "fan_out", "untruncated_normal")
        return [
            argscope([Conv2D, BatchNorm, MaxPooling, GlobalAvgPooling], data_format=data_format),
            argscope(Conv2D, use_bias=False, kernel_initializer=start),
            argscope(
                BatchNorm,
                epsilon=definition.BATCH_NORM_EPSILON,
                momentum=1 - definition.BATCH_NORM_MOMENTUM,
            ),
        ]

    def _add_bottleneck(self, x: tf.Tensor, inner: int, stride: int, is_first: bool) -> tf.Tensor:
        """Add 1x1, 3x3 (with the stride) and 1x1 convolutions, and the identity or a projection."""
        outer = inner * self._definition.EXPANSION
        y = tf.nn.relu(_convolve("reduce", x, inner, 1, 1))
        y = tf.nn.relu(_convolve("spatial", y, inner, 3, stride))
        y = _convolve("expand", y, outer, 1, 1)
        if is_first:
            x = _convolve("shortcut", x, outer, 1, stride)
        return tf.nn.relu(x + y)


def _convolve(name: str, x: tf.Tensor, channels: int, size: int, stride: int) -> tf.Tensor:
    """Add a convolution to x, of this kernel size, and its batch normalization."""
    return BatchNorm(f"{name}_normalization", Conv2D(name, x, channels, size, strides=stride))
