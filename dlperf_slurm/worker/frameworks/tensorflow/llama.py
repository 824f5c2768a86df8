"""LLaMA pre-training in TensorFlow, from the framework-neutral definition."""

from typing import Any, Dict

import tensorflow as tf

from dlperf_slurm.worker.frameworks.tensorflow.layers import (
    Embedding,
    Linear,
    RMSNorm,
    multiply_rows,
)
from dlperf_slurm.worker.models.llama import Definition


class Attention(tf.Module):
    """Causal grouped-query self-attention over hidden [batch, length, hidden_size].

    The query heads of a group are rows of one matrix product with their shared key head. `cosine`
    and `sine` [length, 1, head_size / 2] are the rotary position embedding. `is_seen`, bool
    [length, length], is true where a query may attend to a key.
    """

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, kv_size = definition.hidden_size, definition.kv_size
        self.heads, self.kv_heads = definition.heads, definition.kv_heads
        self.head_size = definition.head_size
        self.query = Linear(hidden, hidden, has_bias=False)
        self.key = Linear(hidden, kv_size, has_bias=False)
        self.value = Linear(hidden, kv_size, has_bias=False)
        self.output = Linear(hidden, hidden, has_bias=False)

    def __call__(self, x: tf.Tensor, cosine: Any, sine: Any, is_seen: tf.Tensor) -> tf.Tensor:
        batch, length, hidden = x.shape.as_list()
        kv_heads, size = self.kv_heads, self.head_size
        group = self.heads // kv_heads
        query = tf.reshape(self.query(x), (batch, length, self.heads, size))
        query = tf.reshape(rotate(query, cosine, sine), (batch, length, kv_heads, group, size))
        query = tf.transpose(query * size**-0.5, (0, 2, 3, 1, 4))
        query = tf.reshape(query, (batch, kv_heads, group * length, size))
        key, value = (
            tf.reshape(projection(x), (batch, length, kv_heads, size))
            for projection in (self.key, self.value)
        )
        key = tf.transpose(rotate(key, cosine, sine), (0, 2, 1, 3))
        scores = tf.matmul(query, key, transpose_b=True)
        scores = tf.reshape(scores, (batch, kv_heads, group, length, length))
        weights = tf.nn.softmax(tf.compat.v1.where_v2(is_seen, scores, scores.dtype.min))
        weights = tf.reshape(weights, (batch, kv_heads, group * length, length))
        y = tf.matmul(weights, tf.transpose(value, (0, 2, 1, 3)))
        y = tf.reshape(y, (batch, kv_heads, group, length, size))
        return self.output(tf.reshape(tf.transpose(y, (0, 3, 1, 2, 4)), (batch, length, hidden)))


def rotate(x: tf.Tensor, cosine: Any, sine: Any) -> tf.Tensor:
    """Apply rotary position embedding to x [batch, length, heads, head_size], in the dtype of x.

    `cosine` and `sine` are [length, 1, head_size / 2]. Element i of the first half of a
    head is rotated with element i of the second half.
    """
    cosine, sine = tf.cast(cosine, x.dtype), tf.cast(sine, x.dtype)
    first, second = tf.split(x, 2, axis=-1)
    return tf.concat((first * cosine - second * sine, second * cosine + first * sine), axis=-1)


class Layer(tf.Module):
    """Pre-norm layer: attention, then SwiGLU feed-forward, each with a residual connection."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, inner = definition.hidden_size, definition.intermediate_size
        epsilon = definition.normalization_epsilon
        self.attention_normalization = RMSNorm(hidden, epsilon)
        self.attention = Attention(definition)
        self.feed_forward_normalization = RMSNorm(hidden, epsilon)
        self.gate = Linear(hidden, inner, has_bias=False)
        self.up = Linear(hidden, inner, has_bias=False)
        self.down = Linear(inner, hidden, has_bias=False)

    def __call__(self, x: tf.Tensor, cosine: Any, sine: Any, is_seen: tf.Tensor) -> tf.Tensor:
        x = x + self.attention(self.attention_normalization(x), cosine, sine, is_seen)
        y = self.feed_forward_normalization(x)
        return x + self.down(tf.nn.swish(self.gate(y)) * self.up(y))


class Model(tf.Module):
    """LLaMA: input_ids int64 [batch, length] -> logits [batch, length, vocabulary_size].

    All layers after the embedding compute in `compute_type`.
    """

    def __init__(self, definition: Definition, compute_type: tf.DType) -> None:
        super().__init__()
        self.compute_type = compute_type
        hidden, vocabulary = definition.hidden_size, definition.vocabulary_size
        self.embedding = Embedding(vocabulary, hidden)
        self.layers = [Layer(definition) for _ in range(definition.layers)]
        self.normalization = RMSNorm(hidden, definition.normalization_epsilon)
        self.head = (
            None if definition.tied_embedding else Linear(hidden, vocabulary, has_bias=False)
        )
        # kept in NumPy: a tensor would belong to the graph that is being built
        self.rotation = [table[:, None, :] for table in definition.make_rotation()]

    def __call__(self, input_ids: tf.Tensor, training: bool) -> tf.Tensor:
        x = tf.cast(self.embedding(input_ids), self.compute_type)
        # computed from a range: as a constant in the graph, the mask would have the square of the
        # length
        positions = tf.range(input_ids.shape.as_list()[1])
        is_seen = positions[:, None] >= positions
        cosine, sine = self.rotation
        for layer in self.layers:
            x = layer(x, cosine, sine, is_seen)
        x = self.normalization(x)
        if self.head is None:
            return multiply_rows(x, self.embedding.weight, transpose=True)
        return self.head(x)


def compute_loss(
    definition: Definition, logits: tf.Tensor, batch: Dict[str, tf.Tensor]
) -> tf.Tensor:
    """Return the mean float32 cross-entropy of batch["labels"] (next tokens) over all positions."""
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=batch["labels"], logits=tf.cast(logits, tf.float32)
        )
    )
