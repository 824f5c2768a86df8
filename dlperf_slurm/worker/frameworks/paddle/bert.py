"""BERT pre-training in Paddle, from the framework-neutral definition."""

from typing import Dict, Tuple

import paddle
from paddle import Tensor, nn
from paddle.nn import functional as F

from dlperf_slurm.worker.frameworks.paddle.layers import Attention
from dlperf_slurm.worker.models.bert import Definition


class Embeddings(nn.Layer):
    """Embed token ids and segment ids [batch, length] as hidden [batch, length, hidden_size]."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.word = nn.Embedding(definition.vocabulary_size, hidden)
        self.position = nn.Embedding(definition.max_positions, hidden)
        self.token_type = nn.Embedding(definition.type_vocabulary_size, hidden)
        self.normalization = nn.LayerNorm(hidden, epsilon=definition.LAYER_NORM_EPSILON)
        self.dropout = nn.Dropout(definition.dropout)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
        positions = self.position.weight[: input_ids.shape[1]]
        x = self.word(input_ids) + self.token_type(token_type_ids) + positions
        return self.dropout(self.normalization(x))


class Layer(nn.Layer):
    """Post-norm layer: attention, then feed-forward, each with dropout, residual and layer norm."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, inner = definition.hidden_size, definition.intermediate_size
        self.attention = Attention(definition, definition.dropout)
        self.attention_normalization = nn.LayerNorm(hidden, epsilon=definition.LAYER_NORM_EPSILON)
        self.intermediate = nn.Linear(hidden, inner)
        self.output = nn.Linear(inner, hidden)
        self.output_normalization = nn.LayerNorm(hidden, epsilon=definition.LAYER_NORM_EPSILON)
        self.dropout = nn.Dropout(definition.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention_normalization(x + self.dropout(self.attention(x)))
        y = self.output(F.gelu(self.intermediate(x)))
        return self.output_normalization(x + self.dropout(y))


class Decoder(nn.Layer):
    """Linear layer that shares the token embedding's weight and has its own bias.

    nn.Linear would need the transposed embedding, which is another tensor.
    """

    def __init__(self, definition: Definition, word_embedding: nn.Embedding) -> None:
        super().__init__()
        self.weight = word_embedding.weight
        self.bias = self.create_parameter([definition.vocabulary_size], is_bias=True)

    def forward(self, x: Tensor) -> Tensor:
        return paddle.matmul(x, self.weight, transpose_y=True) + self.bias


class MaskedTokenHead(nn.Layer):
    """Masked-token head: [batch, length, hidden_size] -> [batch, predictions, vocabulary_size]."""

    def __init__(self, definition: Definition, word_embedding: nn.Embedding) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.transform = nn.Linear(hidden, hidden)
        self.normalization = nn.LayerNorm(hidden, epsilon=definition.LAYER_NORM_EPSILON)
        self.decoder = Decoder(definition, word_embedding)

    def forward(self, x: Tensor, masked_positions: Tensor) -> Tensor:
        index = masked_positions.unsqueeze(-1).expand((-1, -1, x.shape[-1]))
        gathered = x.take_along_axis(index, 1)
        return self.decoder(self.normalization(F.gelu(self.transform(gathered))))


class Model(nn.Layer):
    """BERT for pre-training, with a masked-token head and a next-sentence head.

    Returns logits [batch, predictions, vocabulary_size] and [batch, 2]. All inputs are int64, as
    `worker.synthetic_batch` makes them. `data_format`, the layout of images, has no effect.
    """

    def __init__(self, definition: Definition, data_format: str) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.embeddings = Embeddings(definition)
        self.layers = nn.LayerList([Layer(definition) for _ in range(definition.layers)])
        self.masked_words = MaskedTokenHead(definition, self.embeddings.word)
        self.pooler = nn.Linear(hidden, hidden)
        self.next_sentence = nn.Linear(hidden, 2)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        masked_positions: Tensor,
    ) -> Tuple[Tensor, Tensor]:
        x = self.embeddings(input_ids, token_type_ids)
        for layer in self.layers:
            x = layer(x)
        pooled = F.tanh(self.pooler(x[:, 0]))
        return self.masked_words(x, masked_positions), self.next_sentence(pooled)


def compute_loss(
    definition: Definition, logits: Tuple[Tensor, Tensor], batch: Dict[str, Tensor]
) -> Tensor:
    """Return the mean masked-token cross-entropy plus the mean next-sentence cross-entropy."""
    tokens, next_sentence = logits
    return F.cross_entropy(tokens.flatten(0, 1), batch["masked_ids"].flatten()) + F.cross_entropy(
        next_sentence, batch["next_sentence_labels"]
    )
