"""LLaMA pre-training in MXNet, from the framework-neutral definition."""

from typing import Any, Dict

import mxnet as mx
import numpy
from mxnet.gluon import HybridBlock, nn

from dlperf_slurm.worker.frameworks.mxnet.layers import compute_cross_entropy, make_linear
from dlperf_slurm.worker.models.llama import Definition


class RMSNorm(HybridBlock):
    """RMS normalization over the last axis."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        self._epsilon = definition.normalization_epsilon
        self.weight = self.params.get("weight", shape=(definition.hidden_size,))

    def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
        mean_square = F.mean(F.square(x), axis=-1, keepdims=True)
        return F.broadcast_mul(F.broadcast_mul(x, F.rsqrt(mean_square + self._epsilon)), weight)


class Attention(HybridBlock):
    """Causal grouped-query self-attention over hidden [batch, length, hidden_size].

    `cosine` and `sine` [1, length, 1, head_size / 2] are the rotary position embedding. `lengths`,
    int32 [1, queries per key * length], is the number of keys that each query attends to.
    """

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, kv_size = definition.hidden_size, definition.kv_size
        self._heads, self._kv_heads = definition.heads, definition.kv_heads
        self._head_size = definition.head_size
        self._scale = definition.head_size**-0.5
        self.query = make_linear(hidden, hidden, use_bias=False)
        self.key = make_linear(hidden, kv_size, use_bias=False)
        self.value = make_linear(hidden, kv_size, use_bias=False)
        self.output = make_linear(hidden, hidden, use_bias=False)

    def hybrid_forward(self, F: Any, x: Any, cosine: Any, sine: Any, lengths: Any) -> Any:
        query, key, value = (
            projection(x).reshape(shape=(0, 0, -1, self._head_size))
            for projection in (self.query, self.key, self.value)
        )
        query = rotate(F, query * self._scale, cosine, sine)
        key = rotate(F, key, cosine, sine)
        # [batch * kv_heads, queries per key * length, head_size], so that no key is repeated; in
        # MXNet's reshape, 0 keeps an axis, -3 merges two axes and -4 splits one
        query = query.reshape(shape=(0, 0, -4, self._kv_heads, -1, 0)).transpose((0, 2, 3, 1, 4))
        query = query.reshape(shape=(-3, -3, 0))
        key, value = (a.transpose((0, 2, 1, 3)).reshape(shape=(-3, 0, 0)) for a in (key, value))
        scores = F.batch_dot(query, key, transpose_b=True)
        lengths = F.broadcast_like(lengths, scores, lhs_axes=(0,), rhs_axes=(0,))
        y = F.batch_dot(F.softmax(scores, lengths, use_length=True), value)
        y = y.reshape(shape=(-4, -1, self._kv_heads, -4, self._heads // self._kv_heads, -1, 0))
        return self.output(y.transpose((0, 3, 1, 2, 4)).reshape(shape=(0, 0, -1)))


def rotate(F: Any, x: Any, cosine: Any, sine: Any) -> Any:
    """Apply rotary position embedding to x [batch, length, heads, head_size].

    `F` is mx.nd or mx.sym. `cosine` and `sine` are [1, length, 1, head_size / 2]. Element i of the
    first half of a head is rotated with element i of the second half.
    """
    first, second = F.split(x, num_outputs=2, axis=-1)
    return F.concat(
        F.broadcast_mul(first, cosine) - F.broadcast_mul(second, sine),
        F.broadcast_mul(second, cosine) + F.broadcast_mul(first, sine),
        dim=-1,
    )


class Layer(HybridBlock):
    """Pre-norm layer: attention, then SwiGLU feed-forward, each with a residual connection."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, inner = definition.hidden_size, definition.intermediate_size
        self.attention_normalization = RMSNorm(definition)
        self.attention = Attention(definition)
        self.feed_forward_normalization = RMSNorm(definition)
        self.gate = make_linear(hidden, inner, use_bias=False)
        self.up = make_linear(hidden, inner, use_bias=False)
        self.down = make_linear(inner, hidden, use_bias=False)

    def hybrid_forward(self, F: Any, x: Any, cosine: Any, sine: Any, lengths: Any) -> Any:
        x = x + self.attention(self.attention_normalization(x), cosine, sine, lengths)
        y = self.feed_forward_normalization(x)
        gate = self.gate(y)
        return x + self.down(gate * F.sigmoid(gate) * self.up(y))


class Model(HybridBlock):
    """LLaMA: input_ids int32 [batch, length] -> logits [batch, length, vocabulary_size]."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, vocabulary = definition.hidden_size, definition.vocabulary_size
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.layers = nn.HybridSequential()
        for _ in range(definition.layers):
            self.layers.add(Layer(definition))
        self.normalization = RMSNorm(definition)
        tied = self.embedding.collect_params() if definition.tied_embedding else None
        self.head = make_linear(hidden, vocabulary, use_bias=False, params=tied)
        cosine, sine = (table[None, :, None] for table in definition.make_rotation())
        lengths = numpy.arange(1, definition.sequence_length + 1, dtype=numpy.int32)
        lengths = numpy.tile(lengths, (1, definition.heads // definition.kv_heads))
        self.cosine = self.params.get_constant("cosine", cosine)
        self.sine = self.params.get_constant("sine", sine)
        self.lengths = self.params.get_constant("lengths", mx.nd.array(lengths, dtype="int32"))

    def hybrid_forward(self, F: Any, input_ids: Any, cosine: Any, sine: Any, lengths: Any) -> Any:
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x, cosine, sine, lengths)
        return self.head(self.normalization(x))


def compute_loss(
    definition: Definition, logits: mx.nd.NDArray, batch: Dict[str, mx.nd.NDArray]
) -> mx.nd.NDArray:
    """Return mean cross-entropy of logits [batch, length, vocabulary_size] to next-token labels."""
    return compute_cross_entropy(logits, batch["labels"])
