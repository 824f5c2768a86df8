"""Vision transformer in MXNet, from the framework-neutral definition."""

from typing import Any, Dict

import mxnet as mx
from mxnet.gluon import HybridBlock, nn

from dlperf_slurm.worker.frameworks.mxnet.layers import (
    Attention,
    compute_cross_entropy,
    compute_gelu,
    make_linear,
    make_normalization,
)
from dlperf_slurm.worker.models.vit import Definition


class Layer(HybridBlock):
    """Pre-norm layer: attention, then feed-forward, each with a residual connection."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, inner = definition.hidden_size, definition.intermediate_size
        epsilon = definition.LAYER_NORM_EPSILON
        self.attention_normalization = make_normalization(hidden, epsilon)
        self.attention = Attention(definition)
        self.feed_forward_normalization = make_normalization(hidden, epsilon)
        self.intermediate = make_linear(hidden, inner)
        self.output = make_linear(inner, hidden)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        x = x + self.attention(self.attention_normalization(x))
        y = self.intermediate(self.feed_forward_normalization(x))
        return x + self.output(compute_gelu(F, y))


class Model(HybridBlock):
    """Vision transformer: images [batch, 3, height, width] -> logits [batch, classes]."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, size = definition.hidden_size, definition.patch_size
        self.class_token = self.params.get("class_token", shape=(hidden,))
        self.positions = self.params.get("positions", shape=(definition.sequence_length, hidden))
        self.patch_embedding = nn.Conv2D(
            hidden, size, strides=size, in_channels=definition.IMAGE_CHANNELS
        )
        self.layers = nn.HybridSequential()
        for _ in range(definition.layers):
            self.layers.add(Layer(definition))
        self.normalization = make_normalization(hidden, definition.LAYER_NORM_EPSILON)
        self.classifier = make_linear(hidden, definition.classes)

    def hybrid_forward(self, F: Any, images: Any, class_token: Any, positions: Any) -> Any:
        patches = self.patch_embedding(images).reshape(shape=(0, 0, -1)).transpose((0, 2, 1))
        token = class_token.reshape(shape=(1, 1, -1))
        token = F.broadcast_like(token, patches, lhs_axes=(0,), rhs_axes=(0,))
        x = F.broadcast_add(F.concat(token, patches, dim=1), F.expand_dims(positions, axis=0))
        for layer in self.layers:
            x = layer(x)
        first = F.slice_axis(x, axis=1, begin=0, end=1).reshape(shape=(0, -1))
        return self.classifier(self.normalization(first))


def compute_loss(
    definition: Definition, logits: mx.nd.NDArray, batch: Dict[str, mx.nd.NDArray]
) -> mx.nd.NDArray:
    """Return mean cross-entropy of logits [batch, classes], with the definition's label smoothing.

    batch["labels"] are class indices [batch], or class probabilities [batch, classes] with mixup.
    """
    return compute_cross_entropy(logits, batch["labels"], definition.label_smoothing)
