"""Layers that several models share and OneFlow itself does not have as needed."""

import oneflow as flow
from oneflow import Tensor, nn
from oneflow.nn import functional as F

from dlperf_slurm.worker.models import Transformer


class Dropout(nn.Module):
    """Dropout by OneFlow's default generator; nn.Dropout's own has the same seed on all ranks."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, p=self.rate, training=self.training) if self.rate else x


class Attention(nn.Module):
    """Multi-head self-attention over hidden [batch, length, hidden_size]."""

    def __init__(self, definition: Transformer, dropout: float = 0.0) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.head_shape = (definition.heads, definition.head_size)
        self.scale = definition.head_size**-0.5
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, hidden)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            projection(x).reshape(*x.shape[:2], *self.head_shape).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        scores = flow.matmul(query * self.scale, key.transpose(-2, -1))
        y = flow.matmul(self.dropout(flow.softmax(scores, dim=-1)), value)
        return self.output(y.transpose(1, 2).flatten(-2))
