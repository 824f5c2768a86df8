"""Vision transformer in Paddle, from the framework-neutral definition."""

import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F

from dlperf_slurm.worker.frameworks.paddle.layers import Attention, compute_class_loss
from dlperf_slurm.worker.models.vit import Definition


class Layer(nn.Layer):
    """Pre-norm layer: attention, then feed-forward, each with a residual connection."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, inner = definition.hidden_size, definition.intermediate_size
        epsilon = definition.LAYER_NORM_EPSILON
        self.attention_normalization = nn.LayerNorm(hidden, epsilon=epsilon)
        self.attention = Attention(definition)
        self.feed_forward_normalization = nn.LayerNorm(hidden, epsilon=epsilon)
        self.intermediate = nn.Linear(hidden, inner)
        self.output = nn.Linear(inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_normalization(x))
        y = self.intermediate(self.feed_forward_normalization(x))
        return x + self.output(F.gelu(y))


class Model(nn.Layer):
    """ViT: images [batch, 3, height, width] or channels last -> logits [batch, classes]."""

    def __init__(self, definition: Definition, data_format: str) -> None:
        super().__init__()
        hidden, size = definition.hidden_size, definition.patch_size
        self.class_token = self.create_parameter([hidden])
        self.positions = self.create_parameter([definition.sequence_length, hidden])
        self.patch_embedding = nn.Conv2D(
            definition.IMAGE_CHANNELS, hidden, size, stride=size, data_format=data_format
        )
        self.layers = nn.LayerList([Layer(definition) for _ in range(definition.layers)])
        self.normalization = nn.LayerNorm(hidden, epsilon=definition.LAYER_NORM_EPSILON)
        self.classifier = nn.Linear(hidden, definition.classes)
        self._data_format = data_format

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patch_embedding(images)
        if self._data_format == "NCHW":
            patches = patches.flatten(2).transpose((0, 2, 1))
        else:
            patches = patches.flatten(1, 2)
        token = self.class_token.astype(patches.dtype).expand((patches.shape[0], 1, -1))
        x = paddle.concat((token, patches), axis=1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.classifier(self.normalization(x[:, 0]))


compute_loss = compute_class_loss
