"""LLaMA pre-training in PyTorch, from the framework-neutral definition."""

from typing import Dict, List, NamedTuple, Optional

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dlperf_slurm.worker.models.llama import Definition


class Cache(NamedTuple):
    """Key/value cache of one layer; both are [batch, kv_heads, length, head_size]."""

    keys: Tensor
    values: Tensor


class Attention(nn.Module):
    """Causal grouped-query self-attention over hidden [batch, length, hidden_size].

    `cosine` and `sine` [length, head_size / 2] are the rotary position embedding. With a cache,
    keys and values are stored at `positions`: a single token attends to all cached positions up to
    its own, a longer input only to itself.
    """

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, kv_size = definition.hidden_size, definition.kv_size
        self.head_size = definition.head_size
        self.queries_per_key = definition.heads // definition.kv_heads
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, kv_size, bias=False)
        self.value = nn.Linear(hidden, kv_size, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)

    def forward(
        self,
        x: Tensor,
        cosine: Tensor,
        sine: Tensor,
        cache: Optional[Cache] = None,
        positions: Optional[Tensor] = None,
    ) -> Tensor:
        query, key, value = (
            projection(x).unflatten(-1, (-1, self.head_size)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        if cache is not None and positions is not None:
            cache.keys.index_copy_(2, positions, key)
            cache.values.index_copy_(2, positions, value)
            if x.shape[1] == 1:
                return self.output(attend_to_cache(query, cache, positions).flatten(1)[:, None])
        is_grouped = self.queries_per_key > 1
        if is_grouped and query.dtype == torch.float32:
            # torch's grouped-query GPU kernels take 16-bit types only: float32 would run unfused
            key, value = (x.repeat_interleave(self.queries_per_key, dim=1) for x in (key, value))
            is_grouped = False
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=is_grouped)
        return self.output(y.transpose(1, 2).flatten(-2))


def attend_to_cache(query: Tensor, cache: Cache, position: Tensor) -> Tensor:
    """Attend from one token to the cache; query and result are [batch, heads, 1, head_size].

    The query heads that share a key head are laid out as sequence positions, so that the cache is
    not repeated for each of them. Cached positions after `position` are masked.
    """
    grouped = query.unflatten(1, (cache.keys.shape[1], -1)).squeeze(3)
    is_seen = torch.arange(cache.keys.shape[2], device=query.device) <= position
    y = F.scaled_dot_product_attention(grouped, cache.keys, cache.values, attn_mask=is_seen[None])
    return y.reshape(query.shape)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Apply rotary position embedding to x [batch, heads, length, head_size], in the dtype of x.

    `cosine` and `sine` are [length, head_size / 2]. Element i of the first half of a head is
    rotated with element i of the second half.
    """
    cosine, sine = cosine.to(x.dtype), sine.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class Layer(nn.Module):
    """Pre-norm layer: attention, then SwiGLU feed-forward, each with a residual connection."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, inner = definition.hidden_size, definition.intermediate_size
        epsilon = definition.normalization_epsilon
        self.attention_normalization = nn.RMSNorm(hidden, eps=epsilon)
        self.attention = Attention(definition)
        self.feed_forward_normalization = nn.RMSNorm(hidden, eps=epsilon)
        self.gate = nn.Linear(hidden, inner, bias=False)
        self.up = nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(
        self,
        x: Tensor,
        cosine: Tensor,
        sine: Tensor,
        cache: Optional[Cache] = None,
        positions: Optional[Tensor] = None,
    ) -> Tensor:
        y = self.attention_normalization(x)
        x = x + self.attention(y, cosine, sine, cache, positions)
        y = self.feed_forward_normalization(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    """LLaMA: input_ids int64 [batch, length] -> logits [batch, length, vocabulary_size]."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, vocabulary = definition.hidden_size, definition.vocabulary_size
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.layers = nn.ModuleList([Layer(definition) for _ in range(definition.layers)])
        self.normalization = nn.RMSNorm(hidden, eps=definition.normalization_epsilon)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        if definition.tied_embedding:
            self.head.weight = self.embedding.weight
        for name, table in zip(("cosine", "sine"), definition.make_rotation()):
            self.register_buffer(name, torch.from_numpy(table), persistent=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embedding(input_ids)
        length = input_ids.shape[1]
        for layer in self.layers:
            x = layer(x, self.cosine[:length], self.sine[:length])
        return self.head(self.normalization(x))

    def make_cache(self, batch: int, length: int, dtype: torch.dtype) -> List[Cache]:
        """Allocate a zeroed key/value cache per layer for `batch` sequences of `length` tokens."""
        attention = self.layers[0].attention
        kv_heads = attention.key.out_features // attention.head_size
        shape = (batch, kv_heads, length, attention.head_size)
        device = self.cosine.device
        return [
            Cache(*(torch.zeros(shape, dtype=dtype, device=device) for _ in range(2)))
            for _ in self.layers
        ]

    def predict_next(self, input_ids: Tensor, positions: Tensor, cache: List[Cache]) -> Tensor:
        """Return logits [batch, vocabulary_size] of the token after `input_ids` [batch, length].

        `positions` [length] are those of `input_ids`, whose keys and values are stored in the
        cache.
        """
        x = self.embedding(input_ids)
        cosine, sine = self.cosine[positions], self.sine[positions]
        for layer, own in zip(self.layers, cache):
            x = layer(x, cosine, sine, own, positions)
        return self.head(self.normalization(x[:, -1]))


def compute_loss(definition: Definition, logits: Tensor, batch: Dict[str, Tensor]) -> Tensor:
    """Return mean cross-entropy of logits [batch, length, vocabulary_size] to next-token labels."""
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
