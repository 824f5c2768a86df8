"""What models share, where MegEngine's own module is not there or falls short."""

import numpy
from megengine import Parameter, Tensor
from megengine import functional as F
from megengine import module as nn


class RMSNorm(nn.Module):
    """Over the last axis, in float32 whatever comes in."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = Parameter(numpy.ones(size, numpy.float32))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        x = x.astype("float32")
        mean_square = F.mean(x * x, axis=-1, keepdims=True)
        return x / F.sqrt(mean_square + self.epsilon) * self.weight


def compute_class_loss(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Mean cross-entropy of logits [batch, classes].

    Against labels [batch], or probabilities [batch, classes] where images are mixtures.
    """
    if labels.ndim == 1:
        return F.nn.cross_entropy(logits, labels, label_smooth=smoothing)
    log_probabilities = F.logsoftmax(logits.astype("float32"), axis=1)
    labels = labels * (1 - smoothing) + smoothing / logits.shape[1]
    return -F.sum(labels * log_probabilities, axis=1).mean()
