"""LLaMA pre-training in JAX, from the framework-neutral definition."""

from typing import Any, Dict

import jax
from jax import Array
from jax import numpy as jnp

from dlperf_slurm.worker.frameworks.jax.layers import (
    Embedding,
    Linear,
    RMSNorm,
    Scope,
    attend,
    cross_entropy,
)
from dlperf_slurm.worker.models.llama import Definition


class Attention:
    """Causal self-attention over hidden [batch, length, hidden_size].

    `cosine` and `sine`, [length, head_size / 2], turn queries and keys by their positions.
    """

    def __init__(self, definition: Definition, name: str) -> None:
        self.head_size = definition.head_size
        self.query = Linear(f"{name}.query", has_bias=False)
        self.key = Linear(f"{name}.key", has_bias=False)
        self.value = Linear(f"{name}.value", has_bias=False)
        self.output = Linear(f"{name}.output", has_bias=False)

    def __call__(self, scope: Scope, x: Array, cosine: Any, sine: Any) -> Array:
        query, key, value = (
            projection(scope, x).reshape(*x.shape[:2], -1, self.head_size)
            for projection in (self.query, self.key, self.value)
        )
        y = attend(rotate(query, cosine, sine), rotate(key, cosine, sine), value, is_causal=True)
        return self.output(scope, y.reshape(x.shape))


def rotate(x: Array, cosine: Any, sine: Any) -> Array:
    """x [batch, length, heads, head_size], its halves turned as pairs, in the type of x."""
    cosine, sine = (jnp.asarray(table, x.dtype)[:, None, :] for table in (cosine, sine))
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate(
        (first * cosine - second * sine, second * cosine + first * sine), axis=-1
    )


class Layer:
    """Attention and SwiGLU, each of the normalized input and beside the residual."""

    def __init__(self, definition: Definition, name: str) -> None:
        epsilon = definition.normalization_epsilon
        self.attention_normalization = RMSNorm(f"{name}.attention_normalization", epsilon)
        self.attention = Attention(definition, f"{name}.attention")
        self.feed_forward_normalization = RMSNorm(f"{name}.feed_forward_normalization", epsilon)
        self.gate = Linear(f"{name}.gate", has_bias=False)
        self.up = Linear(f"{name}.up", has_bias=False)
        self.down = Linear(f"{name}.down", has_bias=False)

    def __call__(self, scope: Scope, x: Array, cosine: Any, sine: Any) -> Array:
        x = x + self.attention(scope, self.attention_normalization(scope, x), cosine, sine)
        y = self.feed_forward_normalization(scope, x)
        return x + self.down(scope, jax.nn.silu(self.gate(scope, y)) * self.up(scope, y))


class Llama:
    """input_ids int32 [batch, length] -> logits of the next words [batch, length, words]."""

    def __init__(self, definition: Definition) -> None:
        self.embedding = Embedding("embedding")
        self.layers = [Layer(definition, f"layers.{i}") for i in range(definition.layers)]
        self.normalization = RMSNorm("normalization", definition.normalization_epsilon)
        tied = self.embedding.weight if definition.tied_embedding else ""
        self.head = Linear("head", weight=tied, has_bias=False)
        self.rotation = definition.make_rotation()

    def __call__(self, scope: Scope, input_ids: Array) -> Array:
        x = self.embedding(scope, input_ids)
        for layer in self.layers:
            x = scope.run(layer, x, *self.rotation)
        return self.head(scope, self.normalization(scope, x))


def build_model(definition: Definition) -> Llama:
    return Llama(definition)


def compute_loss(definition: Definition, logits: Array, batch: Dict[str, Array]) -> Array:
    """Mean cross-entropy of the next word at all positions."""
    return cross_entropy(logits, batch["labels"])
