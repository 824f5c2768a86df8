"""ResNet-50 v1.5 in PyTorch, from the framework-neutral definition."""

from typing import Dict

from torch import Tensor, nn
from torch.nn import functional as F

from dlperf_slurm.worker.models.resnet50 import Definition


class Convolution(nn.Module):
    """Convolution without bias, followed by batch normalization."""

    def __init__(
        self, definition: Definition, in_channels: int, out_channels: int, size: int, stride: int
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(
            in_channels, out_channels, size, stride, padding=size // 2, bias=False
        )
        self.normalization = nn.BatchNorm2d(
            out_channels,
            eps=definition.BATCH_NORM_EPSILON,
            momentum=definition.BATCH_NORM_MOMENTUM,
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.normalization(self.convolution(x))


class Bottleneck(nn.Module):
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

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.reduce(x), inplace=True)
        y = F.relu(self.spatial(y), inplace=True)
        y = self.expand(y)
        return F.relu(y + self.shortcut(x), inplace=True)


class Model(nn.Module):
    """ResNet-50: images [batch, 3, height, width] -> logits [batch, classes]."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        self.stem = Convolution(definition, definition.IMAGE_CHANNELS, definition.width, 7, 2)
        self.blocks = nn.Sequential()
        for block in definition.list_blocks():
            self.blocks.append(Bottleneck(definition, *block))
        self.classifier = nn.Linear(definition.feature_channels, definition.classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.stem(images), inplace=True)
        x = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)
        x = self.blocks(x)
        return self.classifier(x.mean(dim=(2, 3)))


def compute_loss(definition: Definition, logits: Tensor, batch: Dict[str, Tensor]) -> Tensor:
    """Return mean cross-entropy of logits [batch, classes], with the definition's label smoothing.

    batch["labels"] are class indices [batch], or class probabilities [batch, classes] with mixup.
    """
    return F.cross_entropy(logits, batch["labels"], label_smoothing=definition.label_smoothing)
