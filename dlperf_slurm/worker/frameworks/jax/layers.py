"""Named layers without arrays of their own: a Scope of weights and statistics -> activations."""

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Mapping, Optional, Set, Tuple

import jax
from jax import Array, lax
from jax import numpy as jnp

from dlperf_slurm.worker.frameworks.jax.sharding import GatheredWeights
from dlperf_slurm.worker.models import Transformer

# layouts of input images, kernels and output images; OIHW is the definition's kernel layout
LAYOUTS = {"default": ("NCHW", "OIHW", "NCHW"), "channels_last": ("NHWC", "HWIO", "NHWC")}
# attention by unfused matrix products and softmax that XLA optimizes, or by one cuDNN kernel
XLA, CUDNN = "xla", "cudnn"


@dataclass
class Scope:
    """The weights, statistics and settings of one forward pass, which its layers read.

    `new_statistics` receives the running statistics that the layers update, `attention_taken` the
    implementations of attention that they use.
    """

    weights: Mapping[str, Array]
    statistics: Mapping[str, Array]
    key: Array
    is_training: bool
    compute_type: jnp.dtype
    layout: Tuple[str, str, str]
    is_checkpointed: bool = False
    attention: str = XLA
    attention_taken: Set[str] = field(default_factory=set)
    new_statistics: Dict[str, Array] = field(default_factory=dict)
    keys_taken: int = 0

    @property
    def channel_axis(self) -> int:
        return self.layout[0].index("C")

    @property
    def image_axes(self) -> Tuple[int, int]:
        return self.layout[0].index("H"), self.layout[0].index("W")

    def take_key(self) -> Array:
        """Return a new random key, which no other layer of this forward pass gets."""
        self.keys_taken += 1
        return jax.random.fold_in(self.key, self.keys_taken)

    def run(self, block: "Block", *arrays: Any) -> Any:
        """Call a block in this scope and return its result; checkpointing keeps only its inputs.

        Checkpointing is for training: the backward pass then runs the block again.
        """
        if not (self.is_training and self.is_checkpointed):
            return block(self, *arrays)

        def compute(*arrays: Any) -> Tuple[Any, Dict[str, Array]]:
            inner = replace(self, new_statistics={})
            y = block(inner, *arrays)
            self.keys_taken = inner.keys_taken
            return y, inner.new_statistics

        y, new_statistics = jax.checkpoint(compute)(*arrays)
        self.new_statistics.update(new_statistics)
        return y

    def cast(self, name: str) -> Array:
        """Return the weight `name` in the type that matrix products and convolutions use."""
        if isinstance(self.weights, GatheredWeights):
            return self.weights.read_as(name, self.compute_type)
        return self.weights[name].astype(self.compute_type)


# (scope, arrays...) -> an array, or several
Block = Callable[..., Any]


class Linear:
    """Linear layer: x [..., in] -> [..., out]."""

    def __init__(self, name: str, weight: str = "", has_bias: bool = True) -> None:
        self.weight = weight or f"{name}.weight"
        self.bias = f"{name}.bias" if has_bias else ""

    def __call__(self, scope: Scope, x: Array) -> Array:
        weight = scope.cast(self.weight)
        y = lax.dot_general(x.astype(weight.dtype), weight, (((x.ndim - 1,), (1,)), ((), ())))
        return y + scope.cast(self.bias) if self.bias else y


class Embedding:
    """Embedding: ids [...] -> rows of the weight [..., size]."""

    def __init__(self, name: str) -> None:
        self.weight = f"{name}.weight"

    def __call__(self, scope: Scope, ids: Array) -> Array:
        return scope.weights[self.weight][ids]


class Dropout:
    """Dropout: in training, zero a fraction `rate` of the values and scale up the others."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, scope: Scope, x: Array) -> Array:
        if not scope.is_training or self.rate == 0.0:
            return x
        is_kept = jax.random.bernoulli(scope.take_key(), 1 - self.rate, x.shape)
        return jnp.where(is_kept, x / (1 - self.rate), 0)


class LayerNorm:
    """Layer normalization over the last axis, in float32; the result has the weights' type."""

    def __init__(self, name: str, epsilon: float) -> None:
        self.weight, self.bias = f"{name}.weight", f"{name}.bias"
        self.epsilon = epsilon

    def __call__(self, scope: Scope, x: Array) -> Array:
        x = x.astype(jnp.float32)
        x = x - x.mean(-1, keepdims=True)
        variance = jnp.square(x).mean(-1, keepdims=True)
        x = x * lax.rsqrt(variance + self.epsilon)
        weight, bias = scope.weights[self.weight], scope.weights[self.bias]
        return (x * weight + bias).astype(weight.dtype)


class RMSNorm:
    """RMS normalization over the last axis, in float32; the result has the weight's type."""

    def __init__(self, name: str, epsilon: float) -> None:
        self.weight = f"{name}.weight"
        self.epsilon = epsilon

    def __call__(self, scope: Scope, x: Array) -> Array:
        x = x.astype(jnp.float32)
        x = x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + self.epsilon)
        weight = scope.weights[self.weight]
        return (x * weight).astype(weight.dtype)


class Conv2d:
    """2-D convolution of images, without bias."""

    def __init__(self, name: str, stride: int, padding: int) -> None:
        self.weight = f"{name}.weight"
        self.strides = (stride, stride)
        # not "SAME", which with a stride of 2 pads only the far side
        self.padding = ((padding, padding), (padding, padding))

    def __call__(self, scope: Scope, x: Array) -> Array:
        weight = scope.cast(self.weight)
        return lax.conv_general_dilated(
            x.astype(weight.dtype),
            weight,
            self.strides,
            self.padding,
            dimension_numbers=scope.layout,
        )


class BatchNorm2d:
    """Batch normalization per channel over this rank's batch, with statistics in float32."""

    def __init__(self, name: str, epsilon: float, momentum: float) -> None:
        self.weight, self.bias = f"{name}.weight", f"{name}.bias"
        self.running_mean, self.running_var = f"{name}.running_mean", f"{name}.running_var"
        self.epsilon, self.momentum = epsilon, momentum

    def __call__(self, scope: Scope, x: Array) -> Array:
        values = x.astype(jnp.float32)
        if scope.is_training:
            mean, variance = self.measure(scope, values)
        else:
            mean, variance = scope.statistics[self.running_mean], scope.statistics[self.running_var]
        scale = scope.weights[self.weight] * lax.rsqrt(variance + self.epsilon)
        axes = [axis for axis in range(x.ndim) if axis != scope.channel_axis]
        mean, scale, bias = (
            jnp.expand_dims(each, axes) for each in (mean, scale, scope.weights[self.bias])
        )
        return ((values - mean) * scale + bias).astype(x.dtype)

    def measure(self, scope: Scope, x: Array) -> Tuple[Array, Array]:
        """Return mean and biased variance of x per channel, and update the running statistics."""
        axes = [axis for axis in range(x.ndim) if axis != scope.channel_axis]
        mean, variance = x.mean(axes), x.var(axes)
        count = x.size // x.shape[scope.channel_axis]
        for name, new in (
            (self.running_mean, mean),
            # the running variance is unbiased
            (self.running_var, variance * (count / max(count - 1, 1))),
        ):
            old = scope.statistics[name]
            scope.new_statistics[name] = old + self.momentum * (new - old)
        return mean, variance


class Attention:
    """Multi-head self-attention over hidden [batch, length, hidden_size].

    Unfused in training with dropout, which jax.nn.dot_product_attention does not have.
    """

    def __init__(self, definition: Transformer, name: str, dropout: float = 0.0) -> None:
        self.head_shape = (definition.heads, definition.head_size)
        self.query = Linear(f"{name}.query")
        self.key = Linear(f"{name}.key")
        self.value = Linear(f"{name}.value")
        self.output = Linear(f"{name}.output")
        self.dropout = Dropout(dropout)

    def __call__(self, scope: Scope, x: Array) -> Array:
        query, key, value = (
            projection(scope, x).reshape(*x.shape[:2], *self.head_shape)
            for projection in (self.query, self.key, self.value)
        )
        if scope.is_training and self.dropout.rate > 0.0:
            scores = jnp.einsum("bqhd,bkhd->bhqk", query, key).astype(jnp.float32)
            weights = jax.nn.softmax(scores / self.head_shape[1] ** 0.5)
            weights = self.dropout(scope, weights).astype(value.dtype)
            y = jnp.einsum("bhqk,bkhd->bqhd", weights, value)
        else:
            y = attend(scope, query, key, value)
        return self.output(scope, y.reshape(x.shape))


def attend(
    scope: Scope,
    query: Array,
    key: Array,
    value: Array,
    is_causal: bool = False,
    seen: Optional[Array] = None,
) -> Array:
    """Compute scaled dot-product attention: query, result [batch, length, heads, head_size].

    `key` and `value` may have fewer heads (grouped-query attention). With `seen` (int32 []), only
    their first `seen` positions count, and XLA's implementation is used whatever the scope says. On
    the CPU float16 attention is computed in float32, because XLA's CPU backend lacks the float16
    product with float32 sums that JAX asks for (jaxlib 0.10).
    """
    implementation: Any = scope.attention if seen is None else XLA
    scope.attention_taken.add(implementation)
    if implementation == CUDNN and scope.is_training:
        return attend_evenly(query, key, value, is_causal, implementation)

    def attend_in(query: Array, key: Array, value: Array) -> Array:
        lengths = None if seen is None else jnp.full(key.shape[0], seen)
        return jax.nn.dot_product_attention(
            query,
            key,
            value,
            is_causal=is_causal,
            key_value_seq_lengths=lengths,
            implementation=implementation,
        )

    def attend_in_float32(*arrays: Array) -> Array:
        y = attend_in(*(array.astype(jnp.float32) for array in arrays))
        return y.astype(query.dtype)

    if query.dtype != jnp.float16 or implementation == CUDNN:
        return attend_in(query, key, value)
    y: Array = lax.platform_dependent(query, key, value, cpu=attend_in_float32, default=attend_in)
    return y


def attend_evenly(
    query: Array, key: Array, value: Array, is_causal: bool, implementation: Any
) -> Array:
    """Attend like `attend`, with one masked position more where the length is odd.

    JAX refuses to differentiate cuDNN's attention over an odd length (jax 0.10 and 0.11).
    """
    batch, length = query.shape[:2]
    options: Any = {"is_causal": is_causal, "implementation": implementation}
    if length % 2 == 0:
        return jax.nn.dot_product_attention(query, key, value, **options)
    padded = (jnp.pad(x, ((0, 0), (0, 1), (0, 0), (0, 0))) for x in (query, key, value))
    lengths = jnp.full(batch, length, jnp.int32)
    y = jax.nn.dot_product_attention(
        *padded, query_seq_lengths=lengths, key_value_seq_lengths=lengths, **options
    )
    return y[:, :length]


def max_pool(scope: Scope, x: Array, size: int, stride: int, padding: int) -> Array:
    """Return the maxima of size x size windows of images x, in the scope's layout."""
    window, strides, pads = [1] * x.ndim, [1] * x.ndim, [(0, 0)] * x.ndim
    for axis in scope.image_axes:
        window[axis], strides[axis], pads[axis] = size, stride, (padding, padding)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, pads)


def cross_entropy(logits: Array, labels: Array, label_smoothing: float = 0.0) -> Array:
    """Return the mean cross-entropy over all labels, in float32.

    Labels are class indices, or class probabilities with a last axis of classes. Label smoothing
    spreads its share evenly over all classes.
    """
    log_probabilities = jax.nn.log_softmax(logits.astype(jnp.float32))
    if labels.ndim == logits.ndim:
        likelihood = (labels * log_probabilities).sum(-1).mean()
    else:
        likelihood = jnp.take_along_axis(log_probabilities, labels[..., None], -1).mean()
    if label_smoothing == 0.0:
        return -likelihood
    return -(1 - label_smoothing) * likelihood - label_smoothing * log_probabilities.mean()
