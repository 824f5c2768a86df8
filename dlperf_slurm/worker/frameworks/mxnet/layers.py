"""What several models are made of: layers, and cross-entropy of logits, accurate in float32."""

from typing import Any

import mxnet as mx
from mxnet.gluon import nn


def make_linear(in_size: int, out_size: int, **options: Any) -> nn.Dense:
    return nn.Dense(out_size, in_units=in_size, flatten=False, **options)


def make_normalization(size: int, epsilon: float) -> nn.LayerNorm:
    return nn.LayerNorm(epsilon=epsilon, in_channels=size)


def compute_gelu(F: Any, x: Any) -> Any:
    """The exact one, with erf, as which MXNet has it among its leaky ReLUs."""
    return F.LeakyReLU(x, act_type="gelu")


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
