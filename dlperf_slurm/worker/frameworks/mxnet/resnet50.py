"""ResNet-50 v1.5 in MXNet, from the framework-neutral definition."""

from typing import Any, Dict

import mxnet as mx
from mxnet.gluon import HybridBlock, nn
from mxnet.gluon.contrib.nn import Identity

from dlperf_slurm.worker.frameworks.mxnet.layers import compute_cross_entropy
from dlperf_slurm.worker.models.resnet50 import Definition


def rectify(F: Any, x: Any) -> Any:
    """Compute ReLU, on the CPU by oneDNN: `F.relu` would convert to the default layout and back.

    `F` is mx.nd or mx.sym.
    """
    return F.Activation(x, act_type="relu")


class Convolution(HybridBlock):
    """Convolution without bias, followed by batch normalization."""

    def __init__(
        self, definition: Definition, in_channels: int, out_channels: int, size: int, stride: int
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2D(
            out_channels, size, stride, padding=size // 2, use_bias=False, in_channels=in_channels
        )
        self.normalization = nn.BatchNorm(
            epsilon=definition.BATCH_NORM_EPSILON,
            # MXNet's momentum is the weight of the old statistics, the definition's that of the new
            # ones
            momentum=1 - definition.BATCH_NORM_MOMENTUM,
            in_channels=out_channels,
        )

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.normalization(self.convolution(x))


class Bottleneck(HybridBlock):
    """Bottleneck block: 1x1, strided 3x3, 1x1 convolution; identity or projection shortcut."""

    def __init__(
        self, definition: Definition, in_channels: int, inner: int, stride: int, is_first: bool
    ) -> None:
        super().__init__()
        outer = inner * definition.EXPANSION
        self.reduce = Convolution(definition, in_channels, inner, 1, 1)
        self.spatial = Convolution(definition, inner, inner, 3, stride)
        self.expand = Convolution(definition, inner, outer, 1, 1)
        self.shortcut = (
            Convolution(definition, in_channels, outer, 1, stride) if is_first else Identity()
        )

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        y = rectify(F, self.reduce(x))
        y = rectify(F, self.spatial(y))
        y = self.expand(y)
        return rectify(F, y + self.shortcut(x))


class Model(HybridBlock):
    """ResNet-50: images [batch, 3, height, width] -> logits [batch, classes]."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        self.stem = Convolution(definition, definition.IMAGE_CHANNELS, definition.width, 7, 2)
        self.blocks = nn.HybridSequential()
        for block in definition.list_blocks():
            self.blocks.add(Bottleneck(definition, *block))
        self.classifier = nn.Dense(definition.classes, in_units=definition.feature_channels)

    def hybrid_forward(self, F: Any, images: Any) -> Any:
        x = rectify(F, self.stem(images))
        x = F.Pooling(x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max")
        x = self.blocks(x)
        return self.classifier(F.mean(x, axis=(2, 3)))


def compute_loss(
    definition: Definition, logits: mx.nd.NDArray, batch: Dict[str, mx.nd.NDArray]
) -> mx.nd.NDArray:
    """Return mean cross-entropy of logits [batch, classes], with the definition's label smoothing.

    batch["labels"] are class indices [batch], or class probabilities [batch, classes] with mixup.
    """
    return compute_cross_entropy(logits, batch["labels"], definition.label_smoothing)
