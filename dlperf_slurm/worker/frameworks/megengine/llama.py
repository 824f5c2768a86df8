"""LLaMA pre-training in MegEngine, from the framework-neutral definition."""

from typing import Dict

from megengine import Tensor
from megengine import functional as F
from megengine import module as nn

from dlperf_slurm.worker.frameworks.megengine.layers import RMSNorm
from dlperf_slurm.worker.models.llama import Definition

# Added to masked attention scores: fits into float16, and its exp is 0.
MASKED_OUT_SCORE = -1e4


class Attention(nn.Module):
    """Causal grouped-query self-attention over hidden [batch, length, hidden_size].

    The query heads of a group are rows of one matrix product with their shared key head. `cosine`
    and `sine` [length, 1, head_size / 2] are the rotary position embedding. `mask` [length, length]
    is added to the attention scores.
    """

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, kv_size = definition.hidden_size, definition.kv_size
        self.heads, self.kv_heads = definition.heads, definition.kv_heads
        self.head_size = definition.head_size
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, kv_size, bias=False)
        self.value = nn.Linear(hidden, kv_size, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor) -> Tensor:
        batch_size, length, hidden = x.shape
        kv_heads, size = self.kv_heads, self.head_size
        group = self.heads // kv_heads
        query = self.query(x).reshape(batch_size, length, self.heads, size)
        query = rotate(query, cosine, sine) * size**-0.5
        query = query.transpose(0, 2, 1, 3).reshape(batch_size, kv_heads, group * length, size)
        key, value = (
            projection(x).reshape(batch_size, length, kv_heads, size)
            for projection in (self.key, self.value)
        )
        key = rotate(key, cosine, sine).transpose(0, 2, 1, 3)
        scores = F.matmul(query, key, transpose_b=True)
        scores = scores.reshape(batch_size, kv_heads, group, length, length) + mask
        weights = F.softmax(scores, axis=-1)
        weights = weights.reshape(batch_size, kv_heads, group * length, length)
        y = F.matmul(weights, value.transpose(0, 2, 1, 3))
        y = y.reshape(batch_size, self.heads, length, size).transpose(0, 2, 1, 3)
        return self.output(y.reshape(batch_size, length, hidden))


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Apply rotary position embedding to x [batch, length, heads, head_size], in the dtype of x.

    `cosine` and `sine` are [length, 1, head_size / 2]. Element i of the first half of a
    head is rotated with element i of the second half.
    """
    cosine, sine = cosine.astype(x.dtype), sine.astype(x.dtype)
    first, second = F.split(x, 2, axis=3)
    return F.concat((first * cosine - second * sine, second * cosine + first * sine), axis=3)


class Layer(nn.Module):
    """Pre-norm layer: attention, then SwiGLU feed-forward, each with a residual connection."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, inner = definition.hidden_size, definition.intermediate_size
        epsilon = definition.normalization_epsilon
        self.attention_normalization = RMSNorm(hidden, epsilon)
        self.attention = Attention(definition)
        self.feed_forward_normalization = RMSNorm(hidden, epsilon)
        self.gate = nn.Linear(hidden, inner, bias=False)
        self.up = nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attention(self.attention_normalization(x), cosine, sine, mask)
        y = self.feed_forward_normalization(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    """LLaMA: input_ids int32 [batch, length] -> logits [batch, length, vocabulary_size]."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, vocabulary = definition.hidden_size, definition.vocabulary_size
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.layers = [Layer(definition) for _ in range(definition.layers)]
        self.normalization = RMSNorm(hidden, definition.normalization_epsilon)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        if definition.tied_embedding:
            self.head.weight = self.embedding.weight
        self.cosine, self.sine = (Tensor(table[:, None, :]) for table in definition.make_rotation())

    def forward(self, input_ids: Tensor) -> Tensor:
        mask = make_causal_mask(input_ids.shape[1])
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine, mask)
        return self.head(self.normalization(x))


def make_causal_mask(length: int) -> Tensor:
    """Return the mask [length, length] to add to scores: 0, or MASKED_OUT_SCORE at later keys."""
    positions = F.arange(length)
    is_later = F.expand_dims(positions, axis=1) < positions
    return is_later.astype("float32") * MASKED_OUT_SCORE


def compute_loss(definition: Definition, logits: Tensor, batch: Dict[str, Tensor]) -> Tensor:
    """Return mean cross-entropy of logits [batch, length, vocabulary_size] to next-token labels."""
    return F.nn.cross_entropy(logits, batch["labels"], axis=2)
