"""ResNet-50 v1.5 in TensorFlow, from the framework-neutral definition."""

from typing import List

import tensorflow as tf

from dlperf_slurm.worker.frameworks.tensorflow.layers import (
    BatchNorm2d,
    Conv2d,
    Linear,
    compute_class_loss,
    pad_sides,
)
from dlperf_slurm.worker.models.resnet50 import Definition


class Convolution(tf.Module):
    """Convolution without bias, followed by batch normalization."""

    def __init__(
        self, definition: Definition, in_channels: int, out_channels: int, size: int, stride: int
    ) -> None:
        super().__init__()
        self.convolution = Conv2d(in_channels, out_channels, size, stride)
        self.normalization = BatchNorm2d(
            out_channels,
            epsilon=definition.BATCH_NORM_EPSILON,
            momentum=definition.BATCH_NORM_MOMENTUM,
        )

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        return self.normalization(self.convolution(x), training)


class Bottleneck(tf.Module):
    """Bottleneck block: 1x1, strided 3x3, 1x1 convolution; identity or projection shortcut."""

    def __init__(
        self, definition: Definition, in_channels: int, inner: int, stride: int, is_first: bool
    ) -> None:
        super().__init__()
        outer = inner * definition.EXPANSION
        self.reduce = Convolution(definition, in_channels, inner, 1, 1)
        self.spatial = Convolution(definition, inner, inner, 3, stride)
        self.expand = Convolution(definition, inner, outer, 1, 1)
        self.shortcut = Convolution(definition, in_channels, outer, 1, stride) if is_first else None

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        y = tf.nn.relu(self.reduce(x, training))
        y = tf.nn.relu(self.spatial(y, training))
        y = self.expand(y, training)
        if self.shortcut is not None:
            x = self.shortcut(x, training)
        return tf.nn.relu(y + x)


class Model(tf.Module):
    """ResNet-50: images [batch, height, width, 3] -> logits [batch, classes], in `compute_type`."""

    def __init__(self, definition: Definition, compute_type: tf.DType) -> None:
        super().__init__()
        self.compute_type = compute_type
        self.stem = Convolution(definition, definition.IMAGE_CHANNELS, definition.width, 7, 2)
        self.blocks: List[Bottleneck] = []
        for block in definition.list_blocks():
            self.blocks.append(Bottleneck(definition, *block))
        self.classifier = Linear(definition.feature_channels, definition.classes)

    def __call__(self, images: tf.Tensor, training: bool) -> tf.Tensor:
        x = tf.nn.relu(self.stem(tf.cast(images, self.compute_type), training))
        # Neither max_pool2d nor XLA has explicit padding; after a ReLU a zero never exceeds a
        # value.
        x = tf.nn.max_pool2d(tf.pad(x, pad_sides(1)), ksize=3, strides=2, padding="VALID")
        for block in self.blocks:
            x = block(x, training)
        return self.classifier(tf.reduce_mean(x, axis=(1, 2)))


compute_loss = compute_class_loss
