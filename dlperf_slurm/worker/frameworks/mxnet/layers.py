"""What several models are made of: layers, and cross-entropy of logits, accurate in float32."""

from typing import Any

import mxnet as mx
from mxnet.gluon import HybridBlock, nn

from dlperf_slurm.worker.models import Transformer


def make_linear(in_size: int, out_size: int, **options: Any) -> nn.Dense:
    return nn.Dense(out_size, in_units=in_size, flatten=False, **options)


def make_normalization(size: int, epsilon: float) -> nn.LayerNorm:
    return nn.LayerNorm(epsilon=epsilon, in_channels=size)


def compute_gelu(F: Any, x: Any) -> Any:
    """The exact one, with erf, as which MXNet has it among its leaky ReLUs."""
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
        # of a rate of 0 it would be a copy
        self.dropout = nn.Dropout(dropout) if dropout else None

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        # [batch * heads, length, head_size]; in a shape, 0 is "as it is", -3 joins two axes and -4
        # splits one
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
    """Mean over all but the last axis, which labels index, or have probabilities for.

    Gluon's own does not smooth the labels. It takes log_softmax, which oneDNN computes on the CPU
    to 2e-6 only; the operator softmax_cross_entropy cuts losses above 18.
    """
    # as in PyTorch, from bfloat16 or float16 on
    logits = logits.astype("float32", copy=False)
    # any constant would do, this one does not overflow
    logits = mx.nd.broadcast_sub(logits, mx.nd.BlockGrad(mx.nd.max(logits, axis=-1, keepdims=True)))
    normalizer = mx.nd.log(mx.nd.sum(mx.nd.exp(logits), axis=-1))
    if labels.ndim == logits.ndim:
        true_logits = mx.nd.sum(labels * logits, axis=-1)
    else:
        true_logits = mx.nd.pick(logits, labels)
    loss = mx.nd.mean(normalizer - (1 - smoothing) * true_logits)
    if not smoothing:
        return loss
    # as in PyTorch, the true class has its share of what is spread over all classes
    return loss - smoothing * mx.nd.mean(logits)
