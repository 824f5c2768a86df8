"""Layers and losses that several models share and MegEngine does not have as needed."""

from typing import Any, Dict

import numpy
from megengine import Parameter, Tensor
from megengine import functional as F
from megengine import module as nn

from dlperf_slurm.worker.models import Transformer


class Attention(nn.Module):
    """Multi-head self-attention over hidden [batch, length, hidden_size]."""

    def __init__(self, definition: Transformer, dropout: float = 0.0) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.head_shape = (definition.heads, definition.head_size)
        self.scale = definition.head_size**-0.5
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch_size, length, _ = x.shape
        query, key, value = (
            projection(x).reshape(batch_size, length, *self.head_shape).transpose(0, 2, 1, 3)
            for projection in (self.query, self.key, self.value)
        )
        scores = F.matmul(query * self.scale, key, transpose_b=True)
        y = F.matmul(self.dropout(F.softmax(scores, axis=-1)), value)
        return self.output(y.transpose(0, 2, 1, 3).reshape(batch_size, length, -1))


class RMSNorm(nn.Module):
    """RMS normalization over the last axis, computed in float32."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = Parameter(numpy.ones(size, numpy.float32))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        x = x.astype("float32")
        mean_square = F.mean(x * x, axis=-1, keepdims=True)
        return x / F.sqrt(mean_square + self.epsilon) * self.weight


def compute_class_loss(definition: Any, logits: Tensor, batch: Dict[str, Tensor]) -> Tensor:
    """Return the mean cross-entropy of logits [batch, classes].

    batch["labels"] are class indices [batch], or class probabilities [batch, classes] with mixup,
    and smoothed by `definition.label_smoothing`.
    """
    labels, smoothing = batch["labels"], definition.label_smoothing
    if labels.ndim == 1:
        return F.nn.cross_entropy(logits, labels, label_smooth=smoothing)
    log_probabilities = F.logsoftmax(logits.astype("float32"), axis=1)
    labels = labels * (1 - smoothing) + smoothing / logits.shape[1]
    return -F.sum(labels * log_probabilities, axis=1).mean()
