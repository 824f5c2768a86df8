"""ResNet-50 v1.5 in JAX, from the framework-neutral definition."""

from typing import Dict, List

import jax
from jax import Array

from dlperf_slurm.worker.frameworks.jax.layers import (
    BatchNorm2d,
    Conv2d,
    Linear,
    Scope,
    cross_entropy,
    max_pool,
)
from dlperf_slurm.worker.models.resnet50 import Definition


class Convolution:
    """Convolution without bias, followed by batch normalization."""

    def __init__(self, definition: Definition, name: str, size: int, stride: int) -> None:
        self.convolution = Conv2d(f"{name}.convolution", stride, padding=size // 2)
        self.normalization = BatchNorm2d(
            f"{name}.normalization",
            epsilon=definition.BATCH_NORM_EPSILON,
            momentum=definition.BATCH_NORM_MOMENTUM,
        )

    def __call__(self, scope: Scope, x: Array) -> Array:
        return self.normalization(scope, self.convolution(scope, x))


class Bottleneck:
    """Bottleneck block: 1x1, strided 3x3, 1x1 convolution; identity or projection shortcut."""

    def __init__(self, definition: Definition, name: str, stride: int, is_first: bool) -> None:
        self.reduce = Convolution(definition, f"{name}.reduce", 1, 1)
        self.spatial = Convolution(definition, f"{name}.spatial", 3, stride)
        self.expand = Convolution(definition, f"{name}.expand", 1, 1)
        self.shortcut = Convolution(definition, f"{name}.shortcut", 1, stride) if is_first else None

    def __call__(self, scope: Scope, x: Array) -> Array:
        y = jax.nn.relu(self.reduce(scope, x))
        y = jax.nn.relu(self.spatial(scope, y))
        y = self.expand(scope, y)
        return jax.nn.relu(y + (x if self.shortcut is None else self.shortcut(scope, x)))


class Model:
    """ResNet-50: images [batch, 3, height, width] or channels last -> logits [batch, classes]."""

    def __init__(self, definition: Definition) -> None:
        self.stem = Convolution(definition, "stem", 7, 2)
        self.blocks: List[Bottleneck] = []
        for index, (_, _, stride, is_first) in enumerate(definition.list_blocks()):
            self.blocks.append(Bottleneck(definition, f"blocks.{index}", stride, is_first))
        self.classifier = Linear("classifier")

    def __call__(self, scope: Scope, images: Array) -> Array:
        x = jax.nn.relu(self.stem(scope, images))
        x = max_pool(scope, x, size=3, stride=2, padding=1)
        for block in self.blocks:
            x = scope.run(block, x)
        return self.classifier(scope, x.mean(scope.image_axes))


def compute_loss(definition: Definition, logits: Array, batch: Dict[str, Array]) -> Array:
    """Return mean cross-entropy of logits [batch, classes], with the definition's label smoothing.

    batch["labels"] are class indices [batch], or class probabilities [batch, classes] with mixup.
    """
    return cross_entropy(logits, batch["labels"], label_smoothing=definition.label_smoothing)
