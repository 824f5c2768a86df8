"""Layers that several models share and MindSpore itself does not have."""

from mindspore import Tensor, nn, ops

from dlperf_slurm.worker.models import Transformer


def make_normalization(size: int, epsilon: float) -> nn.LayerNorm:
    return nn.LayerNorm([size], epsilon=epsilon)


class Attention(nn.Cell):
    """Multi-head self-attention over hidden [batch, length, hidden_size]."""

    def __init__(self, definition: Transformer, dropout: float = 0.0) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.head_shape = (definition.heads, definition.head_size)
        self.scale = definition.head_size**-0.5
        self.query = nn.Dense(hidden, hidden)
        self.key = nn.Dense(hidden, hidden)
        self.value = nn.Dense(hidden, hidden)
        self.output = nn.Dense(hidden, hidden)
        self.dropout = nn.Dropout(p=dropout)

    def construct(self, x: Tensor) -> Tensor:
        # MindSpore's fused attention operator is for Ascend only
        query = self.split_heads(self.query(x))
        key = self.split_heads(self.key(x))
        value = self.split_heads(self.value(x))
        scores = ops.matmul(query * self.scale, key.swapaxes(2, 3))
        y = ops.matmul(self.dropout(ops.softmax(scores)), value)
        return self.output(y.swapaxes(1, 2).reshape(x.shape))

    def split_heads(self, x: Tensor) -> Tensor:
        """Split the heads: [batch, length, hidden_size] -> [batch, heads, length, head_size]."""
        return x.reshape(x.shape[:2] + self.head_shape).swapaxes(1, 2)
