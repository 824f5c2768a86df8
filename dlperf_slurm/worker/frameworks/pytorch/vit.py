"""Vision transformer in PyTorch, from the framework-neutral definition."""

from typing import Dict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dlperf_slurm.worker.frameworks.pytorch.layers import Attention
from dlperf_slurm.worker.models.vit import Definition


class Layer(nn.Module):
    """Pre-norm layer: attention, then feed-forward, each with a residual connection."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, inner = definition.hidden_size, definition.intermediate_size
        self.attention_normalization = nn.LayerNorm(hidden, eps=definition.LAYER_NORM_EPSILON)
        self.attention = Attention(definition)
        self.feed_forward_normalization = nn.LayerNorm(hidden, eps=definition.LAYER_NORM_EPSILON)
        self.intermediate = nn.Linear(hidden, inner)
        self.output = nn.Linear(inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_normalization(x))
        y = self.intermediate(self.feed_forward_normalization(x))
        return x + self.output(F.gelu(y))


class Model(nn.Module):
    """Vision transformer: images [batch, 3, height, width] -> logits [batch, classes]."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, size = definition.hidden_size, definition.patch_size
        self.class_token = nn.Parameter(torch.empty(hidden))
        self.positions = nn.Parameter(torch.empty(definition.sequence_length, hidden))
        self.patch_embedding = nn.Conv2d(definition.IMAGE_CHANNELS, hidden, size, stride=size)
        self.layers = nn.ModuleList([Layer(definition) for _ in range(definition.layers)])
        self.normalization = nn.LayerNorm(hidden, eps=definition.LAYER_NORM_EPSILON)
        self.classifier = nn.Linear(hidden, definition.classes)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patch_embedding(images).flatten(2).transpose(1, 2)
        token = self.class_token.to(patches.dtype).expand(len(patches), 1, -1)
        x = torch.cat((token, patches), dim=1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.classifier(self.normalization(x[:, 0]))


def compute_loss(definition: Definition, logits: Tensor, batch: Dict[str, Tensor]) -> Tensor:
    """Return mean cross-entropy of logits [batch, classes], with the definition's label smoothing.

    batch["labels"] are class indices [batch], or class probabilities [batch, classes] with mixup.
    """
    return F.cross_entropy(logits, batch["labels"], label_smoothing=definition.label_smoothing)
