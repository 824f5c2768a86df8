"""BERT pre-training in JAX, from the framework-neutral definition."""

from typing import Dict, Tuple

import jax
from jax import Array
from jax import numpy as jnp

from dlperf_slurm.worker.frameworks.jax.layers import (
    Attention,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    Scope,
    cross_entropy,
)
from dlperf_slurm.worker.models.bert import Definition


class Embeddings:
    """Embed token ids and segment ids [batch, length] as hidden [batch, length, hidden_size]."""

    def __init__(self, definition: Definition, name: str) -> None:
        self.word = Embedding(f"{name}.word")
        self.position = Embedding(f"{name}.position")
        self.token_type = Embedding(f"{name}.token_type")
        self.normalization = LayerNorm(f"{name}.normalization", definition.LAYER_NORM_EPSILON)
        self.dropout = Dropout(definition.dropout)

    def __call__(self, scope: Scope, input_ids: Array, token_type_ids: Array) -> Array:
        positions = self.position(scope, slice(input_ids.shape[1]))
        x = self.word(scope, input_ids) + self.token_type(scope, token_type_ids) + positions
        return self.dropout(scope, self.normalization(scope, x))


class Layer:
    """Post-norm layer: attention, then feed-forward, each with dropout, residual and layer norm."""

    def __init__(self, definition: Definition, name: str) -> None:
        epsilon = definition.LAYER_NORM_EPSILON
        self.attention = Attention(definition, f"{name}.attention", definition.dropout)
        self.attention_normalization = LayerNorm(f"{name}.attention_normalization", epsilon)
        self.intermediate = Linear(f"{name}.intermediate")
        self.output = Linear(f"{name}.output")
        self.output_normalization = LayerNorm(f"{name}.output_normalization", epsilon)
        self.dropout = Dropout(definition.dropout)

    def __call__(self, scope: Scope, x: Array) -> Array:
        y = self.dropout(scope, self.attention(scope, x))
        x = self.attention_normalization(scope, x + y)
        y = self.output(scope, gelu(self.intermediate(scope, x)))
        return self.output_normalization(scope, x + self.dropout(scope, y))


class MaskedTokenHead:
    """Masked-token head: [batch, length, hidden_size] -> [batch, predictions, vocabulary_size]."""

    def __init__(self, definition: Definition, name: str, word_embedding: Embedding) -> None:
        self.transform = Linear(f"{name}.transform")
        self.normalization = LayerNorm(f"{name}.normalization", definition.LAYER_NORM_EPSILON)
        self.decoder = Linear(f"{name}.decoder", weight=word_embedding.weight)

    def __call__(self, scope: Scope, x: Array, masked_positions: Array) -> Array:
        gathered = jnp.take_along_axis(x, masked_positions[..., None], 1)
        y = self.normalization(scope, gelu(self.transform(scope, gathered)))
        return self.decoder(scope, y)


class Model:
    """BERT for pre-training, with a masked-token head and a next-sentence head.

    Returns logits [batch, predictions, vocabulary_size] and [batch, 2]. All inputs are as
    `worker.synthetic_batch` makes them, but int32.
    """

    def __init__(self, definition: Definition) -> None:
        self.embeddings = Embeddings(definition, "embeddings")
        self.layers = [Layer(definition, f"layers.{i}") for i in range(definition.layers)]
        self.masked_words = MaskedTokenHead(definition, "masked_words", self.embeddings.word)
        self.pooler = Linear("pooler")
        self.next_sentence = Linear("next_sentence")

    def __call__(
        self,
        scope: Scope,
        input_ids: Array,
        token_type_ids: Array,
        masked_positions: Array,
    ) -> Tuple[Array, Array]:
        x = self.embeddings(scope, input_ids, token_type_ids)
        for layer in self.layers:
            x = scope.run(layer, x)
        pooled = jnp.tanh(self.pooler(scope, x[:, 0]))
        return self.masked_words(scope, x, masked_positions), self.next_sentence(scope, pooled)


def gelu(x: Array) -> Array:
    """Compute the exact GELU, by erf; JAX's own default is the tanh approximation."""
    return jax.nn.gelu(x, approximate=False)


def compute_loss(
    definition: Definition, logits: Tuple[Array, Array], batch: Dict[str, Array]
) -> Array:
    """Return the mean masked-token cross-entropy plus the mean next-sentence cross-entropy."""
    tokens, next_sentence = logits
    return cross_entropy(tokens, batch["masked_ids"]) + cross_entropy(
        next_sentence, batch["next_sentence_labels"]
    )
