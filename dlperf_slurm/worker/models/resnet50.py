"""ResNet-50 v1.5: image classification (He et al. 2015), with the stride in the 3x3 convolution."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Iterator, Mapping, NamedTuple, Tuple

from dlperf_slurm.worker.annotations import Arrays, RandomState
from dlperf_slurm.worker.models import (
    Network,
    Parameter,
    Verification,
    find_fraction_problem,
    list_linear,
    list_normalization,
    make_image_sample,
)
from dlperf_slurm.worker.update_rule import MOMENTUM, Rule

PUBLISHED_NAME = "ResNet-50"
SAMPLE_UNIT = "images"
INPUT = "images"
DATASET = "images"
INPUTS = ("images",)
HAS_ACCURACY = True
GENERATES = False
HAS_BATCH_STATISTICS = True
LAYERS = ("convolution", "max pooling", "batch normalization")
ZERO_GRADIENTS = ()
PRESETS: Mapping[str, Mapping[str, Any]] = {}
VERIFICATION = Verification(
    # blocks with and without a projection shortcut
    model_parameters={
        "image_size": 64,
        "stage_blocks": (1, 2, 1, 1),
        "width": 8,
        "classes": 10,
        "label_smoothing": 0.1,
    },
    # enough values per batch normalization to keep it well-conditioned
    batch_size_per_device=16,
    # A value that rounding moves across a ReLU's kink changes a gradient by 1e-4 to 5e-2, even
    # between two memory layouts of one framework. `verify` uses a seed for which no value is that
    # close.
    gradient_tolerance=1e-3,
    # Reduced precisions move values across kinks for any seed: with more channels the change of
    # each gradient is nearer to its expected size.
    reduced_precision_parameters={"width": 16},
)


class Convolution(NamedTuple):
    """A square convolution without bias, followed by batch normalization; sizes are in pixels."""

    name: str
    in_channels: int
    out_channels: int
    kernel_size: int
    output_size: int


class Block(NamedTuple):
    """A bottleneck block; the first of a stage has a projection shortcut."""

    in_channels: int
    inner_channels: int
    stride: int
    is_first: bool


@dataclass(frozen=True)
class Definition(Network):
    """Sizes of the network and its fixed hyper-parameters (NVIDIA DeepLearningExamples, v1.5).

    The full size has 25,557,032 parameters.
    """

    image_size: int = 224
    stage_blocks: Tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    classes: int = 1000
    label_smoothing: float = 0.0

    LEAST: ClassVar[Mapping[str, int]] = {"image_size": 32}
    IMAGE_CHANNELS: ClassVar[int] = 3
    EXPANSION: ClassVar[int] = 4
    CLASSIFIER_STANDARD_DEVIATION: ClassVar[float] = 0.01
    BATCH_NORM_EPSILON: ClassVar[float] = 1e-5
    # Weight of the new batch in the running statistics; 1 - 0.1 in a framework whose momentum is
    # the weight of the old ones. Whether the running variance is biased or unbiased is up to the
    # framework: training does not read it.
    BATCH_NORM_MOMENTUM: ClassVar[float] = 0.1
    # the rate is that of 256 images
    RULE: ClassVar[Rule] = Rule(
        MOMENTUM, learning_rate=0.256, weight_decay=3.0517578125e-05, momentum=0.875
    )
    CLIP_GLOBAL_NORM: ClassVar[float] = 1.0

    def make_rule(self, global_batch_size: int) -> Rule:
        """Return the update rule, at a rate of 0.256 per 256 images, but of at most 0.256.

        The recipe reaches higher rates over five epochs of warm-up. With 120 steps on one batch and
        no warm-up, the loss diverges at such rates. The rate does not change the cost of a step.
        """
        rate = self.RULE.learning_rate * min(global_batch_size, 256) / 256
        return self.RULE._replace(learning_rate=rate)

    def make_sample(self, random: RandomState) -> Arrays:
        return make_image_sample(random, self.IMAGE_CHANNELS, self.image_size, self.classes)

    def list_blocks(self) -> Iterator[Block]:
        """Yield channels, stride and so on of each bottleneck block, in the network's order."""
        channels = self.width
        for stage, blocks in enumerate(self.stage_blocks):
            inner = self.width * 2**stage
            for block in range(blocks):
                is_first = block == 0
                yield Block(channels, inner, 2 if is_first and stage > 0 else 1, is_first)
                channels = inner * self.EXPANSION

    def list_convolutions(self) -> Iterator[Convolution]:
        """Yield every convolution of the network, with its output's side length in pixels."""
        size = _halve(self.image_size)
        yield Convolution("stem", self.IMAGE_CHANNELS, self.width, 7, size)
        size = _halve(size)
        for index, (channels, inner, stride, is_first) in enumerate(self.list_blocks()):
            outer = inner * self.EXPANSION
            in_size = size
            if stride == 2:
                size = _halve(size)
            yield Convolution(f"blocks.{index}.reduce", channels, inner, 1, in_size)
            yield Convolution(f"blocks.{index}.spatial", inner, inner, 3, size)
            yield Convolution(f"blocks.{index}.expand", inner, outer, 1, size)
            if is_first:
                yield Convolution(f"blocks.{index}.shortcut", channels, outer, 1, size)

    @property
    def feature_channels(self) -> int:
        """Number of input channels of the classifier."""
        return int(self.width * 2 ** (len(self.stage_blocks) - 1) * self.EXPANSION)

    def list_parameters(self) -> Iterator[Parameter]:
        """Yield the trainable parameters; kernels start as N(0, 2 / (size^2 * out_channels))."""
        for c in self.list_convolutions():
            shape = (c.out_channels, c.in_channels, c.kernel_size, c.kernel_size)
            deviation = math.sqrt(2 / (c.kernel_size**2 * c.out_channels))
            yield Parameter(f"{c.name}.convolution.weight", shape, 0.0, deviation)
            yield from list_normalization(f"{c.name}.normalization", c.out_channels)
        yield from list_linear(
            "classifier", self.feature_channels, self.classes, self.CLASSIFIER_STANDARD_DEVIATION
        )

    def list_running_statistics(self) -> Iterator[Parameter]:
        """Yield name, shape and initial value of mean and variance of each batch normalization."""
        for c in self.list_convolutions():
            yield Parameter(f"{c.name}.normalization.running_mean", (c.out_channels,), 0.0)
            yield Parameter(f"{c.name}.normalization.running_var", (c.out_channels,), 1.0)

    @property
    def flops_per_sample(self) -> int:
        """FLOPs of one sample's forward pass; 8.18e9 at full size."""
        convolutions = sum(
            c.in_channels * c.out_channels * c.kernel_size**2 * c.output_size**2
            for c in self.list_convolutions()
        )
        return 2 * (convolutions + self.feature_channels * self.classes)

    def find_conflicts(self) -> Iterator[str]:
        if len(self.stage_blocks) != 4:
            yield f"stage_blocks is {list(self.stage_blocks)}; allowed: four integers"
        yield from find_fraction_problem("label_smoothing", self.label_smoothing)


def _halve(size: int) -> int:
    """Return the side length in pixels of a layer's output with stride 2: half, rounded up."""
    return (size + 1) // 2
