"""Vision transformer in MindSpore, from the framework-neutral definition."""

from typing import Dict

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

from dlperf_slurm.worker.frameworks.mindspore.layers import Attention, make_normalization
from dlperf_slurm.worker.models.vit import Definition


class Layer(nn.Cell):
    """Pre-norm layer: attention, then feed-forward, each with a residual connection."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, inner = definition.hidden_size, definition.intermediate_size
        self.attention_normalization = make_normalization(hidden, definition.LAYER_NORM_EPSILON)
        self.attention = Attention(definition)
        self.feed_forward_normalization = make_normalization(hidden, definition.LAYER_NORM_EPSILON)
        self.intermediate = nn.Dense(hidden, inner)
        self.output = nn.Dense(inner, hidden)

    def construct(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_normalization(x))
        y = self.intermediate(self.feed_forward_normalization(x))
        return x + self.output(ops.gelu(y, approximate="none"))


class Model(nn.Cell):
    """Vision transformer: images [batch, 3, height, width] -> logits [batch, classes]."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, size = definition.hidden_size, definition.patch_size
        self.class_token = Parameter(ops.zeros(hidden, ms.float32))
        self.positions = Parameter(ops.zeros((definition.sequence_length, hidden), ms.float32))
        self.patch_embedding = nn.Conv2d(
            definition.IMAGE_CHANNELS, hidden, size, size, pad_mode="valid", has_bias=True
        )
        self.layers = nn.CellList([Layer(definition) for _ in range(definition.layers)])
        self.normalization = make_normalization(hidden, definition.LAYER_NORM_EPSILON)
        self.classifier = nn.Dense(hidden, definition.classes)

    def construct(self, images: Tensor) -> Tensor:
        patches = self.patch_embedding(images)
        patches = patches.reshape(patches.shape[:2] + (-1,)).swapaxes(1, 2)
        token = self.class_token.astype(patches.dtype)
        token = token.broadcast_to((patches.shape[0], 1, patches.shape[2]))
        x = ops.cat((token, patches), 1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.classifier(self.normalization(x[:, 0]))


def compute_loss(definition: Definition, logits: Tensor, batch: Dict[str, Tensor]) -> Tensor:
    """Return mean cross-entropy of logits [batch, classes], with the definition's label smoothing.

    batch["labels"] are class indices [batch], or class probabilities [batch, classes] with mixup.
    """
    return ops.cross_entropy(logits, batch["labels"], label_smoothing=definition.label_smoothing)
