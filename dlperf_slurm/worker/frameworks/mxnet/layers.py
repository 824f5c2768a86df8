"""Layers and losses that several models share; the cross-entropy is accurate to float32."""

from typing import Any

import mxnet as mx
from mxnet.gluon import HybridBlock, nn

from dlperf_slurm.worker.models import Transformer


def make_linear(in_size: int, out_size: int, **options: Any) -> nn.Dense:
    return nn.Dense(out_size, in_units=in_size, flatten=False, **options)


def make_normalization(size: int, epsilon: float) -> nn.LayerNorm:
    return nn.LayerNorm(epsilon=epsilon, in_channels=size)


def compute_gelu(F: Any, x: Any) -> Any:
    """Compute the exact GELU, by erf, among MXNet's leaky ReLUs; `F` is mx.nd or mx.sym."""
    return F.LeakyReLU(x, act_type="gelu")


class Attention(HybridBlock):
    """Multi-head self-attention over hidden [batch, length, hidden_size]."""

    def __init__(self, definition: Transformer, dropout: float = 0.0) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self._heads = definition.heads
        self._scale = definition.head_size**-0.5
        self.query = make_linear(hidden, hidden)
        self.key = make_linear(hidden, hidden)
        self.value = make_linear(hidden, hidden)
        self.output = make_linear(hidden, hidden)
        # with a rate of 0, Dropout would still copy its input
        self.dropout = nn.Dropout(dropout) if dropout else None

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        # [batch * heads, length, head_size]; in MXNet's reshape, 0 keeps an axis, -3 merges two
        # axes and -4 splits one
        query, key, value = (
            projection(x)
            .reshape(shape=(0, 0, self._heads, -1))
            .transpose((0, 2, 1, 3))
            .reshape(shape=(-3, 0, 0))
            for projection in (self.query, self.key, self.value)
        )
        scores = F.batch_dot(query * self._scale, key, transpose_b=True)
        weights = F.softmax(scores)
        if self.dropout is not None:
            weights = self.dropout(weights)
        y = F.batch_dot(weights, value)
        y = y.reshape(shape=(-4, -1, self._heads, 0, 0)).transpose((0, 2, 1, 3))
        return self.output(y.reshape(shape=(0, 0, -1)))


def compute_cross_entropy(
    logits: mx.nd.NDArray, labels: mx.nd.NDArray, smoothing: float = 0.0
) -> mx.nd.NDArray:
    """Return the mean cross-entropy over all axes but the last one (the classes), in float32.

    Labels are class indices, or class probabilities with a last axis of classes. Label smoothing
    spreads its share evenly over all classes. Gluon's own loss has no label smoothing, and its
    log_softmax is accurate to 2e-6 only on the CPU (oneDNN); the operator softmax_cross_entropy
    clips losses above 18.
    """
    # in float32, as in PyTorch, also if logits are bfloat16 or float16
    logits = logits.astype("float32", copy=False)
    # subtracting a constant changes nothing; the maximum prevents an overflow of exp
    logits = mx.nd.broadcast_sub(logits, mx.nd.BlockGrad(mx.nd.max(logits, axis=-1, keepdims=True)))
    normalizer = mx.nd.log(mx.nd.sum(mx.nd.exp(logits), axis=-1))
    if labels.ndim == logits.ndim:
        true_logits = mx.nd.sum(labels * logits, axis=-1)
    else:
        true_logits = mx.nd.pick(logits, labels)
    loss = mx.nd.mean(normalizer - (1 - smoothing) * true_logits)
    if not smoothing:
        return loss
    # as in PyTorch, smoothing is spread over all classes, the true one included
    return loss - smoothing * mx.nd.mean(logits)
