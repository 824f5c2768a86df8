"""The layers of both models; each computes in its input's type, from float32 variables.

They are our own since Keras' hide defaults that differ: SAME padding, the biased running variance.
AXES are where a parameter's canonical dimensions stand in the layer's own order.
"""

from typing import Tuple

import tensorflow as tf


class Conv2d(tf.Module):
    """A convolution without bias: [batch, height, width, channel], kernel [height, width, in, out].

    SAME pads both sides alike, as in the definition, only where the kernel does not stride: under a
    stride of 2, it pads an even side by (0, 1) instead of (1, 1).
    """

    AXES = (2, 3, 1, 0)

    def __init__(self, in_channels: int, out_channels: int, size: int, stride: int) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.zeros([size, size, in_channels, out_channels]))
        self.stride = stride
        self.border = size // 2 if stride > 1 else 0

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        if self.border:
            # Not by conv2d's explicit padding: oneDNN has no gradient for that, and in bfloat16 on
            # the CPU what stands in takes 50 times as long (seen in TensorFlow 2.21).
            x = tf.pad(x, pad_sides(self.border))
        padding = "VALID" if self.border else "SAME"
        return tf.nn.conv2d(x, tf.cast(self.weight, x.dtype), self.stride, padding)


class BatchNorm2d(tf.Module):
    """Batch normalization over [batch, height, width]; statistics are float32 and per rank.

    The raw operation, for tf.nn's and Keras' raise an epsilon of 1e-5 to 1.001e-5, which old cuDNN
    needed. Its running variance is the unbiased one; its factor is the new batch's weight.
    """

    def __init__(self, size: int, epsilon: float, momentum: float) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.ones([size]))
        self.bias = tf.Variable(tf.zeros([size]))
        self.running_mean = make_running_statistic(tf.zeros([size]))
        self.running_variance = make_running_statistic(tf.ones([size]))
        self.epsilon = epsilon
        self.momentum = momentum

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=self.weight,
            offset=self.bias,
            mean=self.running_mean,
            variance=self.running_variance,
            epsilon=self.epsilon,
            exponential_avg_factor=self.momentum,
            is_training=training,
        )
        if training:
            self.running_mean.assign(mean)
            self.running_variance.assign(variance)
        return y


class Linear(tf.Module):
    """[..., in] -> [..., out], kernel [in, out]."""

    AXES = (1, 0)

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.zeros([in_size, out_size]))
        self.bias = tf.Variable(tf.zeros([out_size]))

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        # tensordot flattens to one matrix product; matmul would broadcast the kernel over the batch
        y = tf.tensordot(x, tf.cast(self.weight, x.dtype), 1)
        return tf.nn.bias_add(y, tf.cast(self.bias, x.dtype))


class Embedding(tf.Module):
    """ids [...] -> float32 rows [..., size]."""

    AXES = (0, 1)

    def __init__(self, rows: int, size: int) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.zeros([rows, size]))

    def __call__(self, ids: tf.Tensor) -> tf.Tensor:
        return gather_rows(self.weight, ids)


class LayerNorm(tf.Module):
    """Normalization of the last dimension, computed in float32."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.ones([size]))
        self.bias = tf.Variable(tf.zeros([size]))
        self.epsilon = epsilon

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        wide = tf.cast(x, tf.float32)
        mean, variance = tf.nn.moments(wide, -1, keepdims=True)
        y = tf.nn.batch_normalization(wide, mean, variance, self.bias, self.weight, self.epsilon)
        return tf.cast(y, x.dtype)


def pad_sides(padding: int) -> Tuple[Tuple[int, int], ...]:
    """Explicit padding of height and width for [batch, height, width, channel]."""
    return (0, 0), (padding, padding), (padding, padding), (0, 0)


def make_running_statistic(values: tf.Tensor) -> tf.Variable:
    """A variable that each rank moves by itself, and a distributed step does not average."""
    return tf.Variable(values, trainable=False, synchronization=tf.VariableSynchronization.ON_READ)


def gather_rows(weight: tf.Variable, ids: tf.Tensor) -> tf.Tensor:
    """tf.gather with a dense gradient.

    Its own is a list of rows, and the tape would make another such list, of the whole vocabulary,
    of the gradient that a tied decoder adds.
    """
    rows = weight.shape[0]

    @tf.custom_gradient
    def gather(values: tf.Tensor) -> tf.Tensor:
        return tf.gather(values, ids), lambda gradient: tf.math.unsorted_segment_sum(
            gradient, ids, rows
        )

    return gather(tf.convert_to_tensor(weight))


def drop_out(x: tf.Tensor, rate: float, training: bool) -> tf.Tensor:
    return tf.nn.dropout(x, rate) if training and rate > 0 else x
