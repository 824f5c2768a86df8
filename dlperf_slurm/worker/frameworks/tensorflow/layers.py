"""The layers of all models, and a model's variables by canonical name."""

from typing import Any, Dict, Iterable, NamedTuple, Optional, Sequence, Tuple

import numpy
import tensorflow as tf

from dlperf_slurm.worker.models import Parameter, Transformer

# TensorFlow 1 and 2 differ in some operations, and in how a graph is built
IS_VERSION_1 = tf.version.VERSION.startswith("1.")


# Written here because tf.layers and Keras hide defaults that differ: SAME padding, the epsilon of
# batch normalization, the biased running variance. Each layer computes in its input's type, from
# float32 variables. AXES maps the canonical order of a parameter's dimensions to TensorFlow's.
class Conv2d(tf.Module):
    """Convolution without bias: [batch, height, width, channel], kernel [height, width, in, out].

    SAME padding is that of the definition only with a stride of 1: with a stride of 2, SAME pads an
    even side by (0, 1) instead of (1, 1).
    """

    AXES = (2, 3, 1, 0)

    def __init__(self, in_channels: int, out_channels: int, size: int, stride: int) -> None:
        super().__init__()
        self.weight = make_variable([size, size, in_channels, out_channels])
        self.stride = stride
        # only for strides: TensorFlow runs a 1x1 convolution as a matrix product only with SAME or
        # VALID
        self.border = size // 2 if stride > 1 else 0

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        padding: Any = pad_sides(self.border) if self.border else "SAME"
        if self.border and not IS_VERSION_1:
            # Not by conv2d's explicit padding: oneDNN has no gradient for it, and in bfloat16 on
            # the CPU the fallback takes 50 times as long (seen in TensorFlow 2.21).
            x, padding = tf.pad(x, padding), "VALID"
        return tf.nn.conv2d(x, tf.cast(self.weight, x.dtype), self.stride, padding)


class BatchNorm2d(tf.Module):
    """Batch normalization over [batch, height, width], with float32 statistics per rank.

    It is the raw operation, because tf.nn and Keras raise an epsilon of 1e-5 to 1.001e-5, which old
    versions of cuDNN needed. The batch's variance that it returns, and so the running one, is
    unbiased. In TensorFlow 1 the update of the running statistics is added to the graph's
    UPDATE_OPS.
    """

    def __init__(self, size: int, epsilon: float, momentum: float) -> None:
        super().__init__()
        self.weight = make_variable([size], 1.0)
        self.bias = make_variable([size])
        self.running_mean = make_running_statistic(size, 0.0)
        self.running_variance = make_running_statistic(size, 1.0)
        self.epsilon = epsilon
        self.momentum = momentum

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        # TensorFlow 1 requires empty running statistics in training, and does not update them
        is_batch_alone = training and IS_VERSION_1
        options = {} if IS_VERSION_1 else {"exponential_avg_factor": self.momentum}
        y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=self.weight,
            offset=self.bias,
            mean=tf.zeros([0]) if is_batch_alone else self.running_mean,
            variance=tf.zeros([0]) if is_batch_alone else self.running_variance,
            epsilon=self.epsilon,
            is_training=training,
            **options,
        )
        if is_batch_alone:
            for running, new in ((self.running_mean, mean), (self.running_variance, variance)):
                move = running.assign_sub(self.momentum * (running - new))
                tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, move)
        elif training:
            self.running_mean.assign(mean)
            self.running_variance.assign(variance)
        return y


class Linear(tf.Module):
    """Linear layer: [..., in] -> [..., out], kernel [in, out]."""

    AXES = (1, 0)

    def __init__(self, in_size: int, out_size: int, has_bias: bool = True) -> None:
        super().__init__()
        self.weight = make_variable([in_size, out_size])
        self.bias = make_variable([out_size]) if has_bias else None

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        if IS_VERSION_1:
            return multiply_rows(x, self.weight, self.bias)
        # tensordot flattens to one matrix product; matmul would broadcast the kernel over the batch
        y = tf.tensordot(x, tf.cast(self.weight, x.dtype), 1)
        return y if self.bias is None else tf.nn.bias_add(y, tf.cast(self.bias, x.dtype))


class Embedding(tf.Module):
    """Embedding: ids [...] -> float32 rows [..., size]."""

    AXES = (0, 1)

    def __init__(self, rows: int, size: int) -> None:
        super().__init__()
        self.weight = make_variable([rows, size])

    def __call__(self, ids: tf.Tensor) -> tf.Tensor:
        return gather_rows(self.weight, ids)


class LayerNorm(tf.Module):
    """Layer normalization over the last axis, computed in float32."""

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


class RMSNorm(tf.Module):
    """RMS normalization over the last axis, computed in float32."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = make_variable([size], 1.0)
        self.epsilon = epsilon

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        wide = tf.cast(x, tf.float32)
        square = tf.reduce_mean(tf.square(wide), -1, keepdims=True)
        return tf.cast(wide * tf.math.rsqrt(square + self.epsilon) * self.weight, x.dtype)


class Attention(tf.Module):
    """Multi-head self-attention over hidden [batch, length, hidden_size]."""

    def __init__(self, definition: Transformer, dropout: float = 0.0) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.heads, self.head_size = definition.heads, definition.head_size
        self.query = Linear(hidden, hidden)
        self.key = Linear(hidden, hidden)
        self.value = Linear(hidden, hidden)
        self.output = Linear(hidden, hidden)
        self.dropout = dropout

    def __call__(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        batch, length, hidden = x.shape.as_list()
        query, key, value = (
            tf.transpose(
                tf.reshape(projection(x), (batch, length, self.heads, self.head_size)),
                (0, 2, 1, 3),
            )
            for projection in (self.query, self.key, self.value)
        )
        scores = tf.matmul(query * self.head_size**-0.5, key, transpose_b=True)
        weights = drop_out(tf.nn.softmax(scores), self.dropout, training)
        y = tf.matmul(weights, value)
        return self.output(tf.reshape(tf.transpose(y, (0, 2, 1, 3)), (batch, length, hidden)))


def make_variable(
    shape: Sequence[int], value: float = 0, dtype: tf.DType = tf.float32, trainable: bool = True
) -> Any:
    """Create a resource variable filled with `value`, read in a defined order with its updates.

    TensorFlow 1's older reference variables could be read after a step has changed them.
    """
    return tf.compat.v2.Variable(tf.fill(shape, tf.constant(value, dtype)), trainable=trainable)


def make_running_statistic(size: int, value: float) -> Any:
    """Create a variable [size] that each rank updates alone and no distributed step averages."""
    return tf.compat.v2.Variable(
        tf.fill([size], value),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
    )


def pad_sides(padding: int) -> Tuple[Tuple[int, int], ...]:
    """Return tf.pad's padding of height and width for [batch, height, width, channel]."""
    return (0, 0), (padding, padding), (padding, padding), (0, 0)


def multiply_rows(
    x: tf.Tensor, weight: tf.Tensor, bias: Optional[tf.Tensor] = None, transpose: bool = False
) -> tf.Tensor:
    """Multiply x [..., in] by a matrix [in, out], or [out, in] with `transpose`; add the bias.

    All leading axes are flattened into one matrix product.
    """
    *outer, size = x.shape.as_list()
    rows = tf.reshape(x, (-1, size))
    y = tf.matmul(rows, tf.cast(weight, x.dtype), transpose_b=transpose)
    if bias is not None:
        y = tf.nn.bias_add(y, tf.cast(bias, x.dtype))
    return tf.reshape(y, (*outer, y.shape.as_list()[-1]))


def gather_rows(weight: Any, ids: tf.Tensor) -> tf.Tensor:
    """Gather the rows `ids` of an embedding's weight (tf.gather), with a dense gradient.

    tf.gather's own gradient is a sparse list of rows; a tied decoder would add its dense gradient
    as another such list, of the whole vocabulary.
    """
    rows = weight.shape.as_list()[0]

    @tf.custom_gradient
    def gather(values: tf.Tensor) -> Tuple[tf.Tensor, Any]:
        return tf.gather(values, ids), lambda gradient: tf.math.unsorted_segment_sum(
            gradient, ids, rows
        )

    return gather(tf.convert_to_tensor(weight))


def gelu(x: tf.Tensor) -> tf.Tensor:
    """Compute the exact GELU, by erf; TensorFlow 1 has no GELU of its own."""
    return 0.5 * x * (1 + tf.math.erf(x * 0.5**0.5)) if IS_VERSION_1 else tf.nn.gelu(x)


def drop_out(x: tf.Tensor, rate: float, training: bool) -> tf.Tensor:
    return tf.nn.dropout(x, rate=rate) if training and rate > 0 else x


def compute_class_loss(
    definition: Any, logits: tf.Tensor, batch: Dict[str, tf.Tensor]
) -> tf.Tensor:
    """Return the mean cross-entropy of logits [batch, classes], in float32.

    batch["labels"] are class indices [batch], or class probabilities [batch, classes] with mixup,
    and smoothed by `definition.label_smoothing`.
    """
    labels, label_smoothing = batch["labels"], definition.label_smoothing
    logits = tf.cast(logits, tf.float32)
    if labels.dtype.is_floating:
        losses = tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    else:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_mean(losses)
    if label_smoothing == 0:
        return loss
    # smoothing spreads its share evenly over all classes, the true one included
    even = -tf.reduce_mean(tf.nn.log_softmax(logits))
    return (1 - label_smoothing) * loss + label_smoothing * even


class NamedVariable(NamedTuple):
    """A variable, and the axes that its canonical dimensions have in it."""

    variable: tf.Variable
    axes: Tuple[int, ...]


def find_variables(model: tf.Module, parameters: Iterable[Parameter]) -> Dict[str, NamedVariable]:
    """Return the model's variables by canonical name, in the order of the definition.

    Each is with the axes by which to transpose an array in the canonical layout.
    """
    variables = {}
    for parameter in parameters:
        path, _, attribute = parameter.name.rpartition(".")
        layer: Any = model
        # a parameter of the model itself has no path
        for part in filter(None, path.split(".")):
            layer = layer[int(part)] if part.isdigit() else getattr(layer, part)
        axes = layer.AXES if len(parameter.shape) > 1 else (0,)
        variables[parameter.name] = NamedVariable(getattr(layer, attribute), axes)
    return variables


def to_canonical(values: Any, axes: Tuple[int, ...]) -> Any:
    """Return a float32 host copy in the canonical (PyTorch's) layout; undo transpose by `axes`."""
    array = numpy.asarray(values, numpy.float32).transpose(numpy.argsort(axes))
    return numpy.array(array, order="C")


def count_parameters(model: tf.Module) -> int:
    """Return the number of trainable scalars; a tied weight counts once."""
    return sum(variable.shape.num_elements() for variable in model.trainable_variables)
