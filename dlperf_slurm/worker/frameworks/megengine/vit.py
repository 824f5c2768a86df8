"""Vision transformer in MegEngine, from the framework-neutral definition."""

import numpy
from megengine import Parameter, Tensor
from megengine import functional as F
from megengine import module as nn

from dlperf_slurm.worker.frameworks.megengine.layers import Attention, compute_class_loss
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
        self.class_token = Parameter(numpy.zeros(hidden, numpy.float32))
        self.positions = Parameter(numpy.zeros((definition.sequence_length, hidden), numpy.float32))
        self.patch_embedding = nn.Conv2d(definition.IMAGE_CHANNELS, hidden, size, stride=size)
        self.layers = [Layer(definition) for _ in range(definition.layers)]
        self.normalization = nn.LayerNorm(hidden, eps=definition.LAYER_NORM_EPSILON)
        self.classifier = nn.Linear(hidden, definition.classes)

    def forward(self, images: Tensor) -> Tensor:
        patches = F.flatten(self.patch_embedding(images), 2).transpose(0, 2, 1)
        batch_size, _, hidden = patches.shape
        token = F.broadcast_to(self.class_token.astype(patches.dtype), (batch_size, 1, hidden))
        x = F.concat((token, patches), axis=1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.classifier(self.normalization(x[:, 0]))


compute_loss = compute_class_loss
