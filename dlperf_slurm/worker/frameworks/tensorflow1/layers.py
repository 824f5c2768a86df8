"""The layers of both models; each computes in its input's type, from float32 variables.

They are our own since tf.layers' hide defaults that differ: SAME padding, the epsilon of batch
normalization. AXES are where a parameter's canonical dimensions stand in the layer's own order.
"""

from typing import Any, Sequence, Tuple

import tensorflow as tf


class Conv2d(tf.Module):
    """A convolution without bias: [batch, height, width, channel], kernel [height, width, in, out].

    SAME pads both sides alike, as in the definition, only where the kernel does not stride: under a
    stride of 2, it pads an even side by (0, 1) instead of (1, 1).
    """

    AXES = (2, 3, 1, 0)

    def __init__(self, in_channels: int, out_channels: int, size: int, stride: int) -> None:
        super().__init__()
        self.weight = make_variable([size, size, in_channels, out_channels])
        self.stride = stride
        # not everywhere: the matrix product that a 1x1 convolution is wants SAME or VALID
        self.padding = pad_sides(size // 2) if size > 1 and stride > 1 else "SAME"

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return tf.nn.conv2d(x, tf.cast(self.weight, x.dtype), self.stride, self.padding)


class BatchNorm2d(tf.Module):
    """Batch normalization over [batch, height, width]; statistics are float32 and per rank.

    The raw operation, for tf.nn's raises an epsilon of 1e-5 to 1.001e-5, which old cuDNN needed.
    Its variance of the batch is the unbiased one. How a batch moves the running statistics is left
    in the graph's UPDATE_OPS.
    """

    def __init__(self, size: int, epsilon: float, momentum: float) -> None:
        super().__init__()
        self.weight = make_variable([size], 1.0)
        self.bias = make_variable([size])
        self.running_mean = make_variable([size], trainable=False)
        self.running_variance = make_variable([size], 1.0, trainable=False)
        self.epsilon = epsilon
        self.momentum = momentum

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=self.weight,
            offset=self.bias,
            # to be empty in training
            mean=tf.zeros([0]) if training else self.running_mean,
            variance=tf.zeros([0]) if training else self.running_variance,
            epsilon=self.epsilon,
            is_training=training,
        )
        if training:
            for running, new in ((self.running_mean, mean), (self.running_variance, variance)):
                move = running.assign_sub(self.momentum * (running - new))
                tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, move)
        return y


class Linear(tf.Module):
    """[..., in] -> [..., out], kernel [in, out]."""

    AXES = (1, 0)

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self.weight = make_variable([in_size, out_size])
        self.bias = make_variable([out_size])

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return multiply_rows(x, self.weight, self.bias)


class Embedding(tf.Module):
    """ids [...] -> float32 rows [..., size]."""

    AXES = (0, 1)

    def __init__(self, rows: int, size: int) -> None:
        super().__init__()
        self.weight = make_variable([rows, size])

    def __call__(self, ids: tf.Tensor) -> tf.Tensor:
        return gather_rows(self.weight, ids)


class LayerNorm(tf.Module):
    """Normalization of the last dimension, computed in float32."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = make_variable([size], 1.0)
        self.bias = make_variable([size])
        self.epsilon = epsilon

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        wide = tf.cast(x, tf.float32)
        mean, variance = tf.nn.moments(wide, -1, keepdims=True)
        y = tf.nn.batch_normalization(wide, mean, variance, self.bias, self.weight, self.epsilon)
        return tf.cast(y, x.dtype)


def make_variable(
    shape: Sequence[int], value: float = 0, dtype: tf.DType = tf.float32, trainable: bool = True
) -> Any:
    """A resource variable: unlike those of old, it is not read after the step has changed it."""
    start = tf.fill(shape, tf.constant(value, dtype))
    return tf.compat.v1.Variable(start, trainable=trainable, use_resource=True)


def pad_sides(padding: int) -> Tuple[Tuple[int, int], ...]:
    """Explicit padding of height and width for [batch, height, width, channel]."""
    return (0, 0), (padding, padding), (padding, padding), (0, 0)


def multiply_rows(
    x: tf.Tensor, weight: tf.Tensor, bias: tf.Tensor, transpose: bool = False
) -> tf.Tensor:
    """[..., in] times a matrix [in, out], or the transpose of one, plus bias, as one product."""
    *outer, size = x.shape.as_list()
    rows = tf.reshape(x, (-1, size))
    y = tf.matmul(rows, tf.cast(weight, x.dtype), transpose_b=transpose)
    y = tf.nn.bias_add(y, tf.cast(bias, x.dtype))
    return tf.reshape(y, (*outer, y.shape.as_list()[-1]))


def gather_rows(weight: Any, ids: tf.Tensor) -> tf.Tensor:
    """tf.gather with a dense gradient.

    Its own is a list of rows, and tf.gradients would make another such list, of the whole
    vocabulary, of the gradient that a tied decoder adds.
    """
    rows = weight.shape.as_list()[0]

    @tf.custom_gradient
    def gather(values: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        return tf.gather(values, ids), lambda gradient: tf.math.unsorted_segment_sum(
            gradient, ids, rows
        )

    return gather(tf.convert_to_tensor(weight))


def gelu(x: tf.Tensor) -> tf.Tensor:
    """The exact one; TensorFlow 1 has none of its own."""
    return 0.5 * x * (1 + tf.math.erf(x * 0.5**0.5))


def drop_out(x: tf.Tensor, rate: float, training: bool) -> tf.Tensor:
    return tf.nn.dropout(x, rate=rate) if training and rate > 0 else x
