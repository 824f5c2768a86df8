"""LLaMA pre-training in Paddle, from the framework-neutral definition."""

from typing import Dict

import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F

from dlperf_slurm.worker.models.llama import Definition


class RMSNorm(nn.Layer):
    """RMS normalization over the last axis; Paddle's own is for GPUs only."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        self.weight = self.create_parameter([definition.hidden_size])
        self._epsilon = definition.normalization_epsilon

    def forward(self, x: Tensor) -> Tensor:
        mean_square = x.square().mean(-1, keepdim=True)
        return x * paddle.rsqrt(mean_square + self._epsilon) * self.weight


class Attention(nn.Layer):
    """Causal grouped-query self-attention over hidden [batch, length, hidden_size].

    `cosine` and `sine` [length, 1, head_size / 2] are the rotary position embedding.
    """

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, kv_size = definition.hidden_size, definition.kv_size
        self.head_size = definition.head_size
        self.query = nn.Linear(hidden, hidden, bias_attr=False)
        self.key = nn.Linear(hidden, kv_size, bias_attr=False)
        self.value = nn.Linear(hidden, kv_size, bias_attr=False)
        self.output = nn.Linear(hidden, hidden, bias_attr=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        # Paddle's attention takes [batch, length, heads, head_size]
        query, key, value = (
            projection(x).unflatten(-1, (-1, self.head_size))
            for projection in (self.query, self.key, self.value)
        )
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.output(y.flatten(-2))


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Apply rotary position embedding to x [batch, length, heads, head_size], in the dtype of x.

    `cosine` and `sine` are [length, 1, head_size / 2]. Element i of the first half of a head is
    rotated with element i of the second half.
    """
    cosine, sine = cosine.astype(x.dtype), sine.astype(x.dtype)
    first, second = x.chunk(2, axis=-1)
    return paddle.concat((first * cosine - second * sine, second * cosine + first * sine), axis=-1)


class Layer(nn.Layer):
    """Pre-norm layer: attention, then SwiGLU feed-forward, each with a residual connection."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, inner = definition.hidden_size, definition.intermediate_size
        self.attention_normalization = RMSNorm(definition)
        self.attention = Attention(definition)
        self.feed_forward_normalization = RMSNorm(definition)
        self.gate = nn.Linear(hidden, inner, bias_attr=False)
        self.up = nn.Linear(hidden, inner, bias_attr=False)
        self.down = nn.Linear(inner, hidden, bias_attr=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        x = x + self.attention(self.attention_normalization(x), cosine, sine)
        y = self.feed_forward_normalization(x)
        return x + self.down(F.swiglu(self.gate(y), self.up(y)))


class Model(nn.Layer):
    """LLaMA: input_ids int64 [batch, length] -> logits [batch, length, vocabulary_size].

    `data_format`, the layout of images, has no effect.
    """

    cosine: Tensor
    sine: Tensor

    def __init__(self, definition: Definition, data_format: str) -> None:
        super().__init__()
        hidden, vocabulary = definition.hidden_size, definition.vocabulary_size
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.layers = nn.LayerList([Layer(definition) for _ in range(definition.layers)])
        self.normalization = RMSNorm(definition)
        # nn.Linear would need the transposed embedding, which is another tensor
        self.head = (
            None if definition.tied_embedding else nn.Linear(hidden, vocabulary, bias_attr=False)
        )
        for name, table in zip(("cosine", "sine"), definition.make_rotation()):
            tensor = paddle.to_tensor(table).unsqueeze(1)
            self.register_buffer(name, tensor, persistable=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine)
        x = self.normalization(x)
        if self.head is None:
            return paddle.matmul(x, self.embedding.weight, transpose_y=True)
        return self.head(x)


def compute_loss(definition: Definition, logits: Tensor, batch: Dict[str, Tensor]) -> Tensor:
    """Return mean cross-entropy of logits [batch, length, vocabulary_size] to next-token labels."""
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
