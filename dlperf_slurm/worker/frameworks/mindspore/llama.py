"""LLaMA pre-training in MindSpore, from the framework-neutral definition."""

from typing import Dict

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

from dlperf_slurm.worker.models.llama import Definition

# Added to masked attention scores: fits into float16, and its exp is 0.
MASKED_OUT_SCORE = -1e4


class RMSNorm(nn.Cell):
    """RMS normalization over the last axis, in float32; MindSpore's own is for Ascend only."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        self.weight = Parameter(ops.ones(definition.hidden_size, ms.float32))
        self.epsilon = definition.normalization_epsilon

    def construct(self, x: Tensor) -> Tensor:
        x = x.astype(ms.float32)
        mean_square = ops.mean(ops.square(x), -1, True)
        return x * ops.rsqrt(mean_square + self.epsilon) * self.weight


class Attention(nn.Cell):
    """Causal grouped-query self-attention over hidden [batch, length, hidden_size].

    The query heads of a group are rows of one matrix product with their shared key head. `cosine`
    and `sine` [length, 1, head_size / 2] are the rotary position embedding. `mask`, float32
    [length, length], is added to the scores: 0 where a query may attend to a key.
    """

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, kv_size = definition.hidden_size, definition.kv_size
        self.heads, self.kv_heads = definition.heads, definition.kv_heads
        self.group = definition.heads // definition.kv_heads
        self.head_size = definition.head_size
        self.scale = definition.head_size**-0.5
        self.query = nn.Dense(hidden, hidden, has_bias=False)
        self.key = nn.Dense(hidden, kv_size, has_bias=False)
        self.value = nn.Dense(hidden, kv_size, has_bias=False)
        self.output = nn.Dense(hidden, hidden, has_bias=False)

    def construct(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor) -> Tensor:
        batch_size, length, _ = x.shape
        kv_heads, group, size = self.kv_heads, self.group, self.head_size
        query = self.query(x).reshape((batch_size, length, self.heads, size))
        query = (rotate(query, cosine, sine) * self.scale).swapaxes(1, 2)
        query = query.reshape((batch_size, kv_heads, group * length, size))
        key = self.key(x).reshape((batch_size, length, kv_heads, size))
        key = rotate(key, cosine, sine).transpose((0, 2, 3, 1))
        value = self.value(x).reshape((batch_size, length, kv_heads, size)).swapaxes(1, 2)
        scores = ops.matmul(query, key).reshape((batch_size, kv_heads, group, length, length))
        weights = ops.softmax(scores + mask.astype(scores.dtype))
        weights = weights.reshape((batch_size, kv_heads, group * length, length))
        y = ops.matmul(weights, value).reshape((batch_size, self.heads, length, size))
        return self.output(y.swapaxes(1, 2).reshape(x.shape))


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Apply rotary position embedding to x [batch, length, heads, head_size], in the dtype of x.

    `cosine` and `sine` are [length, 1, head_size / 2]. Element i of the first half of a head is
    rotated with element i of the second half.
    """
    half = x.shape[-1] // 2
    cosine, sine = cosine.astype(x.dtype), sine.astype(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return ops.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


class Layer(nn.Cell):
    """Pre-norm layer: attention, then SwiGLU feed-forward, each with a residual connection."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, inner = definition.hidden_size, definition.intermediate_size
        self.attention_normalization = RMSNorm(definition)
        self.attention = Attention(definition)
        self.feed_forward_normalization = RMSNorm(definition)
        self.gate = nn.Dense(hidden, inner, has_bias=False)
        self.up = nn.Dense(hidden, inner, has_bias=False)
        self.down = nn.Dense(inner, hidden, has_bias=False)

    def construct(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attention(self.attention_normalization(x), cosine, sine, mask)
        y = self.feed_forward_normalization(x)
        return x + self.down(ops.silu(self.gate(y)) * self.up(y))


class TiedHead(nn.Cell):
    """Linear layer that shares the embedding's weight."""

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.weight = embedding.embedding_table

    def construct(self, x: Tensor) -> Tensor:
        return ops.matmul(x, self.weight.T)


class Model(nn.Cell):
    """LLaMA: input_ids int64 [batch, length] -> logits [batch, length, vocabulary_size]."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, vocabulary = definition.hidden_size, definition.vocabulary_size
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.layers = nn.CellList([Layer(definition) for _ in range(definition.layers)])
        self.normalization = RMSNorm(definition)
        if definition.tied_embedding:
            self.head = TiedHead(self.embedding)
        else:
            self.head = nn.Dense(hidden, vocabulary, has_bias=False)
        cosine, sine = definition.make_rotation()
        self.cosine, self.sine = Tensor(cosine[:, None, :]), Tensor(sine[:, None, :])

    def construct(self, input_ids: Tensor) -> Tensor:
        positions = ops.arange(input_ids.shape[1])
        mask = (positions.expand_dims(1) < positions).astype(ms.float32) * MASKED_OUT_SCORE
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine, mask)
        return self.head(self.normalization(x))


def compute_loss(definition: Definition, logits: Tensor, batch: Dict[str, Tensor]) -> Tensor:
    """Return mean cross-entropy of logits [batch, length, vocabulary_size] to next-token labels."""
    logits = logits.reshape((-1, logits.shape[-1]))
    return ops.cross_entropy(logits, batch["labels"].reshape(-1))
