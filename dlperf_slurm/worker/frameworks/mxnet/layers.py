"""What both models are made of: cross-entropy of logits, accurate in float32."""

import mxnet as mx


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
