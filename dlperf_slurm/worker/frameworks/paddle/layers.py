"""Layers and losses that several models share and Paddle itself does not have."""

from typing import Any, Dict

from paddle import Tensor, nn
from paddle.nn import functional as F

from dlperf_slurm.worker.models import Transformer


class Attention(nn.Layer):
    """Multi-head self-attention over hidden [batch, length, hidden_size]."""

    def __init__(self, definition: Transformer, dropout: float = 0.0) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.head_shape = (definition.heads, definition.head_size)
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, hidden)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        # Paddle's attention takes [batch, length, heads, head_size]
        query, key, value = (
            projection(x).unflatten(-1, self.head_shape)
            for projection in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout, training=self.training
        )
        return self.output(y.flatten(-2))


def compute_class_loss(definition: Any, logits: Tensor, batch: Dict[str, Tensor]) -> Tensor:
    """Return the mean cross-entropy of logits [batch, classes].

    batch["labels"] are class indices [batch], or class probabilities [batch, classes] with mixup,
    and smoothed by `definition.label_smoothing`.
    On the CPU Paddle 3.3 clips the loss of each sample at 64, and evaluation with the initial
    running statistics of ResNet-50 exceeds that.
    """
    labels = batch["labels"]
    return F.cross_entropy(
        logits,
        labels,
        soft_label=labels.ndim == logits.ndim,
        label_smoothing=definition.label_smoothing,
    )
