"""ResNet-50 v1.5 in OneFlow, from the framework-neutral definition."""

from typing import Dict

import oneflow as flow
from oneflow import Tensor, nn
from oneflow.nn import functional as F

from dlperf_slurm.worker.models.resnet50 import Definition


class BatchNorm(nn.BatchNorm2d):
    """Batch normalization that on the CPU computes in float64.

    OneFlow's CPU kernel adds values one after the other. In float32 the sums are ten times less
    accurate than those of other frameworks; where that flips a ReLU, single gradients change by
    percents.
    """

    def __init__(self, definition: Definition, channels: int) -> None:
        super().__init__(
            channels, eps=definition.BATCH_NORM_EPSILON, momentum=definition.BATCH_NORM_MOMENTUM
        )
        self.is_wide = False

    def widen(self) -> None:
        """Compute in float64 from now on; weight and bias remain float32."""
        for name in ("running_mean", "running_var"):
            setattr(self, name, getattr(self, name).double())
        self.is_wide = True

    def forward(self, x: Tensor) -> Tensor:
        arrays = x, self.weight, self.bias
        values, weight, bias = (a.double() for a in arrays) if self.is_wide else arrays
        y = flow._C.normalization(
            values,
            self.running_mean,
            self.running_var,
            weight,
            bias,
            axis=1,
            epsilon=self.eps,
            momentum=self.momentum,
            is_training=self.training,
        )
        return y.float() if self.is_wide else y


class Convolution(nn.Module):
    """Convolution without bias, followed by batch normalization."""

    def __init__(
        self, definition: Definition, in_channels: int, out_channels: int, size: int, stride: int
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(
            in_channels, out_channels, size, stride, padding=size // 2, bias=False
        )
        self.normalization = BatchNorm(definition, out_channels)

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

    def __init__(self, definition: Definition, device: flow.device) -> None:
        super().__init__()
        self.stem = Convolution(definition, definition.IMAGE_CHANNELS, definition.width, 7, 2)
        self.blocks = nn.Sequential(
            *(Bottleneck(definition, *block) for block in definition.list_blocks())
        )
        self.classifier = nn.Linear(definition.feature_channels, definition.classes)
        if device.type == "cpu":
            for module in self.modules():
                if isinstance(module, BatchNorm):
                    module.widen()
        self.to(device)

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
