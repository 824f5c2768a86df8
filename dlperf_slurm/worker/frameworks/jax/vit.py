"""Vision transformer in JAX, from the framework-neutral definition."""

from typing import Dict

import jax
from jax import Array
from jax import numpy as jnp

from dlperf_slurm.worker.frameworks.jax.layers import (
    Attention,
    Conv2d,
    LayerNorm,
    Linear,
    Scope,
    cross_entropy,
)
from dlperf_slurm.worker.models.vit import Definition


class Layer:
    """Pre-norm layer: attention, then feed-forward, each with a residual connection."""

    def __init__(self, definition: Definition, name: str) -> None:
        epsilon = definition.LAYER_NORM_EPSILON
        self.attention_normalization = LayerNorm(f"{name}.attention_normalization", epsilon)
        self.attention = Attention(definition, f"{name}.attention")
        self.feed_forward_normalization = LayerNorm(f"{name}.feed_forward_normalization", epsilon)
        self.intermediate = Linear(f"{name}.intermediate")
        self.output = Linear(f"{name}.output")

    def __call__(self, scope: Scope, x: Array) -> Array:
        x = x + self.attention(scope, self.attention_normalization(scope, x))
        y = self.intermediate(scope, self.feed_forward_normalization(scope, x))
        # the exact GELU, by erf: JAX's own default is the tanh approximation
        return x + self.output(scope, jax.nn.gelu(y, approximate=False))


class Model:
    """ViT: images [batch, 3, height, width] or channels last -> logits [batch, classes]."""

    def __init__(self, definition: Definition) -> None:
        self.patch_embedding = Conv2d("patch_embedding", definition.patch_size, padding=0)
        self.layers = [Layer(definition, f"layers.{i}") for i in range(definition.layers)]
        self.normalization = LayerNorm("normalization", definition.LAYER_NORM_EPSILON)
        self.classifier = Linear("classifier")

    def __call__(self, scope: Scope, images: Array) -> Array:
        patches = jnp.moveaxis(self.patch_embedding(scope, images), scope.channel_axis, -1)
        batch, *_, hidden = patches.shape
        patches = patches.reshape(batch, -1, hidden) + scope.cast("patch_embedding.bias")
        token = jnp.broadcast_to(scope.cast("class_token"), (batch, 1, hidden))
        x = jnp.concatenate((token, patches), axis=1) + scope.weights["positions"]
        for layer in self.layers:
            x = scope.run(layer, x)
        return self.classifier(scope, self.normalization(scope, x[:, 0]))


def compute_loss(definition: Definition, logits: Array, batch: Dict[str, Array]) -> Array:
    """Return mean cross-entropy of logits [batch, classes], with the definition's label smoothing.

    batch["labels"] are class indices [batch], or class probabilities [batch, classes] with mixup.
    """
    return cross_entropy(logits, batch["labels"], label_smoothing=definition.label_smoothing)
