"""LLaMA pre-training in OneFlow, from the framework-neutral definition."""

from typing import Dict

import oneflow as flow
from oneflow import Tensor, nn
from oneflow.nn import functional as F

from dlperf_slurm.worker.models.llama import Definition


class RMSNorm(nn.Module):
    """RMS normalization over the last axis; OneFlow's own is for GPUs only."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        self.weight = nn.Parameter(flow.empty(definition.hidden_size))
        self.epsilon = definition.normalization_epsilon

    def forward(self, x: Tensor) -> Tensor:
        mean_square = x.square().mean(dim=-1, keepdim=True)
        return x * flow.rsqrt(mean_square + self.epsilon) * self.weight


class Attention(nn.Module):
    """Causal grouped-query self-attention over hidden [batch, length, hidden_size].

    `cosine` and `sine` [length, head_size / 2] are the rotary position embedding. `mask` [length,
    length] is added to the scores: minus infinity for keys after the query's position.
    """

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, kv_size = definition.hidden_size, definition.kv_size
        self.heads, self.kv_heads = definition.heads, definition.kv_heads
        self.head_size = definition.head_size
        self.scale = definition.head_size**-0.5
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, kv_size, bias=False)
        self.value = nn.Linear(hidden, kv_size, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            projection(x).reshape(batch, length, -1, self.head_size).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        query, key = rotate(query * self.scale, cosine, sine), rotate(key, cosine, sine)
        # the query heads of a key head are one matrix, so that no key is repeated
        query = query.reshape(batch, self.kv_heads, -1, self.head_size)
        scores = flow.matmul(query, key.transpose(-2, -1))
        scores = scores.reshape(batch, self.heads, length, length)
        weights = flow.softmax(scores + mask.to(scores.dtype), dim=-1)
        y = flow.matmul(weights.reshape(batch, self.kv_heads, -1, length), value)
        y = y.reshape(batch, self.heads, length, self.head_size)
        return self.output(y.transpose(1, 2).flatten(-2))


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Apply rotary position embedding to x [batch, heads, length, head_size], in the dtype of x.

    `cosine` and `sine` are [length, head_size / 2]. Element i of the first half of a head is
    rotated with element i of the second half.
    """
    cosine, sine = cosine.to(x.dtype), sine.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return flow.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class Layer(nn.Module):
    """Pre-norm layer: attention, then SwiGLU feed-forward, each with a residual connection."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, inner = definition.hidden_size, definition.intermediate_size
        self.attention_normalization = RMSNorm(definition)
        self.attention = Attention(definition)
        self.feed_forward_normalization = RMSNorm(definition)
        self.gate = nn.Linear(hidden, inner, bias=False)
        self.up = nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attention(self.attention_normalization(x), cosine, sine, mask)
        y = self.feed_forward_normalization(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    """LLaMA: input_ids int64 [batch, length] -> logits [batch, length, vocabulary_size]."""

    cosine: Tensor
    sine: Tensor
    mask: Tensor

    def __init__(self, definition: Definition, device: flow.device) -> None:
        super().__init__()
        hidden, vocabulary = definition.hidden_size, definition.vocabulary_size
        length = definition.sequence_length
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList([Layer(definition) for _ in range(definition.layers)])
        self.normalization = RMSNorm(definition)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        if definition.tied_embedding:
            self.head.weight = self.embedding.weight
        for name, table in zip(("cosine", "sine"), definition.make_rotation()):
            self.register_buffer(name, flow.from_numpy(table), persistent=False)
        mask = flow.triu(flow.full((length, length), float("-inf")), diagonal=1)
        self.register_buffer("mask", mask, persistent=False)
        self.to(device)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine, self.mask)
        return self.head(self.normalization(x))


def compute_loss(definition: Definition, logits: Tensor, batch: Dict[str, Tensor]) -> Tensor:
    """Return mean cross-entropy of logits [batch, length, vocabulary_size] to next-token labels."""
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
