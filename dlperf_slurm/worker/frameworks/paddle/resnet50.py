"""ResNet-50 v1.5 in Paddle, from the framework-neutral definition."""

import math

import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F

from dlperf_slurm.worker.frameworks.paddle.layers import compute_class_loss
from dlperf_slurm.worker.models.resnet50 import Definition


class BatchNorm(nn.BatchNorm2D):
    """Paddle's batch normalization with an unbiased running variance, as in the other frameworks.

    cuDNN updates the running variance by the batch's unbiased variance (over count - 1). Paddle's
    own CPU kernel uses the biased one (over count), which is corrected here.
    """

    def __init__(self, definition: Definition, channels: int, data_format: str) -> None:
        super().__init__(
            channels,
            # Paddle's momentum is the weight of the old statistics
            momentum=1 - definition.BATCH_NORM_MOMENTUM,
            epsilon=definition.BATCH_NORM_EPSILON,
            data_format=data_format,
        )
        self._is_biased = paddle.get_device() == "cpu"

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self._is_biased):
            return super().forward(x)
        count = math.prod(x.shape) // self._variance.shape[0]
        if count == 1:
            # Paddle would return x itself; PyTorch refuses such a batch too
            raise ValueError(
                "batch normalization needs more than one value per channel in training; "
                "use a larger batch size or larger images"
            )
        correction = count / (count - 1)
        biased = self._variance / correction
        y = F.batch_norm(
            x,
            self._mean,
            biased,
            self.weight,
            self.bias,
            training=True,
            momentum=self._momentum,
            epsilon=self._epsilon,
            data_format=self._data_format,
        )
        paddle.assign(biased * correction, self._variance)
        return y


class Convolution(nn.Layer):
    """Convolution without bias, followed by batch normalization."""

    def __init__(
        self,
        definition: Definition,
        in_channels: int,
        out_channels: int,
        size: int,
        stride: int,
        data_format: str,
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2D(
            in_channels,
            out_channels,
            size,
            stride,
            padding=size // 2,
            bias_attr=False,
            data_format=data_format,
        )
        self.normalization = BatchNorm(definition, out_channels, data_format)

    def forward(self, x: Tensor) -> Tensor:
        return self.normalization(self.convolution(x))


class Bottleneck(nn.Layer):
    """Bottleneck block: 1x1, strided 3x3, 1x1 convolution; identity or projection shortcut."""

    def __init__(
        self,
        definition: Definition,
        in_channels: int,
        inner: int,
        stride: int,
        is_first: bool,
        data_format: str,
    ) -> None:
        super().__init__()
        outer = inner * definition.EXPANSION
        self.reduce = Convolution(definition, in_channels, inner, 1, 1, data_format)
        self.spatial = Convolution(definition, inner, inner, 3, stride, data_format)
        self.expand = Convolution(definition, inner, outer, 1, 1, data_format)
        self.shortcut = (
            Convolution(definition, in_channels, outer, 1, stride, data_format)
            if is_first
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.reduce(x))
        y = F.relu(self.spatial(y))
        y = self.expand(y)
        return F.relu(y + self.shortcut(x))


class Model(nn.Layer):
    """ResNet-50: images [batch, 3, height, width] or channels last -> logits [batch, classes]."""

    def __init__(self, definition: Definition, data_format: str) -> None:
        super().__init__()
        self.stem = Convolution(
            definition, definition.IMAGE_CHANNELS, definition.width, 7, 2, data_format
        )
        self.blocks = nn.Sequential(
            *(Bottleneck(definition, *block, data_format) for block in definition.list_blocks())
        )
        self.classifier = nn.Linear(definition.feature_channels, definition.classes)
        self._data_format = data_format

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.stem(images))
        x = F.max_pool2d(x, kernel_size=3, stride=2, padding=1, data_format=self._data_format)
        x = self.blocks(x)
        return self.classifier(x.mean((2, 3) if self._data_format == "NCHW" else (1, 2)))


compute_loss = compute_class_loss
