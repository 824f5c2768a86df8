"""ResNet-50 v1.5 in MindSpore, from the framework-neutral definition."""

from typing import Dict

from mindspore import Tensor, nn, ops

from dlperf_slurm.worker.models.resnet50 import Definition


class Convolution(nn.Cell):
    """Convolution without bias, followed by batch normalization."""

    def __init__(
        self, definition: Definition, in_channels: int, out_channels: int, size: int, stride: int
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(
            in_channels,
            out_channels,
            size,
            stride,
            pad_mode="pad",
            padding=size // 2,
            has_bias=False,
        )
        self.normalization = nn.BatchNorm2d(
            out_channels,
            eps=definition.BATCH_NORM_EPSILON,
            # MindSpore's momentum is the weight of the old statistics, the definition's that of the
            # new ones
            momentum=1 - definition.BATCH_NORM_MOMENTUM,
        )

    def construct(self, x: Tensor) -> Tensor:
        return self.normalization(self.convolution(x))


class Bottleneck(nn.Cell):
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
            Convolution(definition, in_channels, outer, 1, stride) if is_first else nn.Identity()
        )

    def construct(self, x: Tensor) -> Tensor:
        y = ops.relu(self.reduce(x))
        y = ops.relu(self.spatial(y))
        y = self.expand(y)
        return ops.relu(y + self.shortcut(x))


class Model(nn.Cell):
    """ResNet-50: images [batch, 3, height, width] -> logits [batch, classes]."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        self.stem = Convolution(definition, definition.IMAGE_CHANNELS, definition.width, 7, 2)
        self.pool = nn.MaxPool2d(3, 2, pad_mode="pad", padding=1)
        self.blocks = nn.SequentialCell()
        for block in definition.list_blocks():
            self.blocks.append(Bottleneck(definition, *block))
        self.classifier = nn.Dense(definition.feature_channels, definition.classes)

    def construct(self, images: Tensor) -> Tensor:
        x = self.pool(ops.relu(self.stem(images)))
        x = self.blocks(x)
        return self.classifier(x.mean((2, 3)))


def compute_loss(definition: Definition, logits: Tensor, batch: Dict[str, Tensor]) -> Tensor:
    """Return mean cross-entropy of logits [batch, classes], with the definition's label smoothing.

    batch["labels"] are class indices [batch], or class probabilities [batch, classes] with mixup.
    """
    return ops.cross_entropy(logits, batch["labels"], label_smoothing=definition.label_smoothing)
