"""ViT-B/16: image classification by a transformer over patches (Dosovitskiy et al. 2021)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Iterator, Mapping

from dlperf_slurm.worker.annotations import Arrays, RandomState
from dlperf_slurm.worker.models import (
    Parameter,
    Transformer,
    Verification,
    find_fraction_problem,
    list_linear,
    list_normalization,
    make_image_sample,
)
from dlperf_slurm.worker.update_rule import ADAMW, Rule

PUBLISHED_NAME = "ViT-B/16"
SAMPLE_UNIT = "images"
INPUT = "images"
DATASET = "images"
INPUTS = ("images",)
HAS_ACCURACY = True
GENERATES = False
HAS_BATCH_STATISTICS = False
LAYERS = ("convolution", "attention", "layer normalization")
# a key bias adds the same to all scores of a query, which softmax cancels
ZERO_GRADIENTS = (".attention.key.bias",)
# the sizes of table 1 of Dosovitskiy et al. 2021, and the small one of Touvron et al. 2021
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "vit-s-16": {"hidden_size": 384, "heads": 6, "intermediate_size": 1536},
    "vit-b-16": {},
    "vit-b-32": {"patch_size": 32},
    "vit-l-16": {"layers": 24, "hidden_size": 1024, "heads": 16, "intermediate_size": 4096},
    "vit-h-14": {
        "patch_size": 14,
        "layers": 32,
        "hidden_size": 1280,
        "heads": 16,
        "intermediate_size": 5120,
    },
}
VERIFICATION = Verification(
    model_parameters={
        "image_size": 32,
        "patch_size": 8,
        "layers": 2,
        "hidden_size": 128,
        "heads": 4,
        "intermediate_size": 256,
        "classes": 10,
    },
    batch_size_per_device=4,
    gradient_tolerance=1e-5,
)


@dataclass(frozen=True)
class Definition(Transformer):
    """Sizes of the network and its fixed hyper-parameters.

    Pre-norm layers, with one more normalization after the last. A learned class token precedes the
    patches, and the classifier reads it. GELU is the exact one, by erf. There is no dropout. The
    full size has 86,567,656 parameters.
    """

    image_size: int = 224
    patch_size: int = 16
    layers: int = 12
    hidden_size: int = 768
    heads: int = 12
    intermediate_size: int = 3072
    classes: int = 1000
    label_smoothing: float = 0.0

    IMAGE_CHANNELS: ClassVar[int] = 3
    WEIGHT_STANDARD_DEVIATION: ClassVar[float] = 0.02
    LAYER_NORM_EPSILON: ClassVar[float] = 1e-6
    # The recipe reaches its peak of 3e-3 after 10,000 steps of warm-up, with batches of 4096. For
    # 120 steps without warm-up, a tenth of that is used for any batch size. The rate does not
    # change the cost of a step.
    RULE: ClassVar[Rule] = Rule(
        ADAMW, learning_rate=3e-4, weight_decay=0.3, betas=(0.9, 0.999), epsilon=1e-8
    )
    CLIP_GLOBAL_NORM: ClassVar[float] = 1.0

    @property
    def patches(self) -> int:
        """Number of patches of an image; their order is row-major."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def sequence_length(self) -> int:
        """Number of tokens: the class token and the patches."""
        return 1 + self.patches

    def list_parameters(self) -> Iterator[Parameter]:
        """Yield the trainable parameters; the first row of `positions` is the class token's."""
        hidden, inner = self.hidden_size, self.intermediate_size
        deviation = self.WEIGHT_STANDARD_DEVIATION
        kernel = (hidden, self.IMAGE_CHANNELS, self.patch_size, self.patch_size)
        yield Parameter("class_token", (hidden,), 0.0, deviation)
        yield Parameter("positions", (self.sequence_length, hidden), 0.0, deviation)
        yield Parameter("patch_embedding.weight", kernel, 0.0, deviation)
        yield Parameter("patch_embedding.bias", (hidden,), 0.0)
        for index in range(self.layers):
            layer = f"layers.{index}"
            yield from list_normalization(f"{layer}.attention_normalization", hidden)
            for name in ("query", "key", "value", "output"):
                yield from list_linear(f"{layer}.attention.{name}", hidden, hidden, deviation)
            yield from list_normalization(f"{layer}.feed_forward_normalization", hidden)
            yield from list_linear(f"{layer}.intermediate", hidden, inner, deviation)
            yield from list_linear(f"{layer}.output", inner, hidden, deviation)
        yield from list_normalization("normalization", hidden)
        yield from list_linear("classifier", hidden, self.classes, deviation)

    @property
    def flops_per_sample(self) -> int:
        """FLOPs of one sample's forward pass; 3.5e10 at full size."""
        hidden, length = self.hidden_size, self.sequence_length
        patches = self.patches * self.IMAGE_CHANNELS * self.patch_size**2 * hidden
        projections = length * (4 * hidden**2 + 2 * hidden * self.intermediate_size)
        attention = 2 * length**2 * hidden
        return 2 * (patches + self.layers * (projections + attention) + hidden * self.classes)

    def make_sample(self, random: RandomState) -> Arrays:
        return make_image_sample(random, self.IMAGE_CHANNELS, self.image_size, self.classes)

    def find_conflicts(self) -> Iterator[str]:
        if self.image_size % self.patch_size:
            yield (
                f"image_size is {self.image_size}; allowed: a multiple of patch_size "
                f"({self.patch_size})"
            )
        yield from super().find_conflicts()
        yield from find_fraction_problem("label_smoothing", self.label_smoothing)
