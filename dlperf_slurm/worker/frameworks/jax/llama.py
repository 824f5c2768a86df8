"""LLaMA pre-training in JAX, from the framework-neutral definition."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import jax
from jax import Array, lax
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


class Cache(NamedTuple):
    """Key/value cache of one layer; both are [batch, length, kv_heads, head_size]."""

    keys: Array
    values: Array

    def fill(self, position: Array, key: Array, value: Array) -> "Cache":
        """Return the cache with these keys and values stored from `position` on.

        Both are [batch, tokens, kv_heads, head_size].
        """
        return Cache(
            lax.dynamic_update_slice_in_dim(self.keys, key.astype(self.keys.dtype), position, 1),
            lax.dynamic_update_slice_in_dim(
                self.values, value.astype(self.values.dtype), position, 1
            ),
        )


class Attention:
    """Causal grouped-query self-attention over hidden [batch, length, hidden_size].

    `cosine` and `sine` [length, head_size / 2] are the rotary position embedding. With a cache,
    keys and values are stored from `position` on: a single token attends to all cached positions up
    to its own, a longer input only to itself. Returns the result and the filled cache, or None
    without a cache.
    """

    def __init__(self, definition: Definition, name: str) -> None:
        self.head_size = definition.head_size
        self.query = Linear(f"{name}.query", has_bias=False)
        self.key = Linear(f"{name}.key", has_bias=False)
        self.value = Linear(f"{name}.value", has_bias=False)
        self.output = Linear(f"{name}.output", has_bias=False)

    def __call__(
        self,
        scope: Scope,
        x: Array,
        cosine: Any,
        sine: Any,
        cache: Optional[Cache] = None,
        position: Any = 0,
    ) -> Tuple[Array, Optional[Cache]]:
        query, key, value = (
            projection(scope, x).reshape(*x.shape[:2], -1, self.head_size)
            for projection in (self.query, self.key, self.value)
        )
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        if cache is not None:
            cache = cache.fill(position, key, value)
        if cache is not None and x.shape[1] == 1:
            y = attend(scope, query, cache.keys, cache.values, seen=position + 1)
        else:
            y = attend(scope, query, key, value, is_causal=True)
        return self.output(scope, y.reshape(x.shape)), cache


def rotate(x: Array, cosine: Any, sine: Any) -> Array:
    """Apply rotary position embedding to x [batch, length, heads, head_size], in the dtype of x.

    `cosine` and `sine` are [length, head_size / 2]. Element i of the first half of a head is
    rotated with element i of the second half.
    """
    cosine, sine = (jnp.asarray(table, x.dtype)[:, None, :] for table in (cosine, sine))
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate(
        (first * cosine - second * sine, second * cosine + first * sine), axis=-1
    )


class Layer:
    """Pre-norm layer: attention, then SwiGLU feed-forward, each with a residual connection."""

    def __init__(self, definition: Definition, name: str) -> None:
        epsilon = definition.normalization_epsilon
        self.attention_normalization = RMSNorm(f"{name}.attention_normalization", epsilon)
        self.attention = Attention(definition, f"{name}.attention")
        self.feed_forward_normalization = RMSNorm(f"{name}.feed_forward_normalization", epsilon)
        self.gate = Linear(f"{name}.gate", has_bias=False)
        self.up = Linear(f"{name}.up", has_bias=False)
        self.down = Linear(f"{name}.down", has_bias=False)

    def __call__(
        self,
        scope: Scope,
        x: Array,
        cosine: Any,
        sine: Any,
        cache: Optional[Cache] = None,
        position: Any = 0,
    ) -> Tuple[Array, Optional[Cache]]:
        y = self.attention_normalization(scope, x)
        y, cache = self.attention(scope, y, cosine, sine, cache, position)
        x = x + y
        y = self.feed_forward_normalization(scope, x)
        return x + self.down(scope, jax.nn.silu(self.gate(scope, y)) * self.up(scope, y)), cache


class Model:
    """LLaMA: input_ids int32 [batch, length] -> logits [batch, length, vocabulary_size]."""

    def __init__(self, definition: Definition) -> None:
        self.embedding = Embedding("embedding")
        self.layers = [Layer(definition, f"layers.{i}") for i in range(definition.layers)]
        self.normalization = RMSNorm("normalization", definition.normalization_epsilon)
        tied = self.embedding.weight if definition.tied_embedding else ""
        self.head = Linear("head", weight=tied, has_bias=False)
        self.rotation = definition.make_rotation()
        self.kv_heads, self.head_size = definition.kv_heads, definition.head_size

    def __call__(self, scope: Scope, input_ids: Array) -> Array:
        x = self.embedding(scope, input_ids)
        cosine, sine = (table[: input_ids.shape[1]] for table in self.rotation)
        for layer in self.layers:
            x, _ = scope.run(layer, x, cosine, sine)
        return self.head(scope, self.normalization(scope, x))

    def make_cache(self, batch: int, length: int, dtype: Any) -> List[Cache]:
        """Allocate a zeroed key/value cache per layer for `batch` sequences of `length` tokens."""
        shape = (batch, length, self.kv_heads, self.head_size)
        return [Cache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)) for _ in self.layers]

    def predict_next(
        self, scope: Scope, input_ids: Array, position: Array, cache: List[Cache]
    ) -> Tuple[Array, List[Any]]:
        """Return logits [batch, vocabulary_size] of the token after `input_ids` [batch, length].

        The first of `input_ids` is at `position`. Also returns the cache with their keys and
        values.
        """
        x = self.embedding(scope, input_ids)
        cosine, sine = (
            lax.dynamic_slice_in_dim(jnp.asarray(table), position, input_ids.shape[1])
            for table in self.rotation
        )
        filled = []
        for layer, own in zip(self.layers, cache):
            x, grown = layer(scope, x, cosine, sine, own, position)
            filled.append(grown)
        return self.head(scope, self.normalization(scope, x[:, -1])), filled


def compute_loss(definition: Definition, logits: Array, batch: Dict[str, Array]) -> Array:
    """Return mean cross-entropy of logits [batch, length, vocabulary_size] to next-token labels."""
    return cross_entropy(logits, batch["labels"])
