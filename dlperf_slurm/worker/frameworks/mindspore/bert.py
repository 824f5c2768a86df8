"""BERT pre-training in MindSpore, from the framework-neutral definition."""

from typing import Dict, Tuple

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

from dlperf_slurm.worker.frameworks.mindspore.layers import Attention, make_normalization
from dlperf_slurm.worker.models.bert import Definition


class Embeddings(nn.Cell):
    """Embed token ids and segment ids [batch, length] as hidden [batch, length, hidden_size]."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.word = nn.Embedding(definition.vocabulary_size, hidden)
        self.position = nn.Embedding(definition.max_positions, hidden)
        self.token_type = nn.Embedding(definition.type_vocabulary_size, hidden)
        self.normalization = make_normalization(hidden, definition.LAYER_NORM_EPSILON)
        self.dropout = nn.Dropout(p=definition.dropout)

    def construct(self, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
        positions = self.position.embedding_table[: input_ids.shape[1]]
        x = self.word(input_ids) + self.token_type(token_type_ids) + positions
        return self.dropout(self.normalization(x))


class Layer(nn.Cell):
    """Post-norm layer: attention, then feed-forward, each with dropout, residual and layer norm."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, inner = definition.hidden_size, definition.intermediate_size
        self.attention = Attention(definition, definition.dropout)
        self.attention_normalization = make_normalization(hidden, definition.LAYER_NORM_EPSILON)
        self.intermediate = nn.Dense(hidden, inner)
        self.output = nn.Dense(inner, hidden)
        self.output_normalization = make_normalization(hidden, definition.LAYER_NORM_EPSILON)
        self.dropout = nn.Dropout(p=definition.dropout)

    def construct(self, x: Tensor) -> Tensor:
        x = self.attention_normalization(x + self.dropout(self.attention(x)))
        y = self.output(ops.gelu(self.intermediate(x), approximate="none"))
        return self.output_normalization(x + self.dropout(y))


class Decoder(nn.Cell):
    """Linear layer that shares the token embedding's weight and has its own bias."""

    def __init__(self, definition: Definition, word_embedding: nn.Embedding) -> None:
        super().__init__()
        self.weight = word_embedding.embedding_table
        self.bias = Parameter(ops.zeros(definition.vocabulary_size, ms.float32))

    def construct(self, x: Tensor) -> Tensor:
        return ops.matmul(x, self.weight.T) + self.bias


class MaskedTokenHead(nn.Cell):
    """Masked-token head: [batch, length, hidden_size] -> [batch, predictions, vocabulary_size]."""

    def __init__(self, definition: Definition, word_embedding: nn.Embedding) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.transform = nn.Dense(hidden, hidden)
        self.normalization = make_normalization(hidden, definition.LAYER_NORM_EPSILON)
        self.decoder = Decoder(definition, word_embedding)

    def construct(self, x: Tensor, masked_positions: Tensor) -> Tensor:
        index = masked_positions.expand_dims(-1).broadcast_to((-1, -1, x.shape[-1]))
        gathered = ops.gather_elements(x, 1, index)
        transformed = ops.gelu(self.transform(gathered), approximate="none")
        return self.decoder(self.normalization(transformed))


class Model(nn.Cell):
    """BERT for pre-training, with a masked-token head and a next-sentence head.

    Returns logits [batch, predictions, vocabulary_size] and [batch, 2]. All inputs are int64, as
    `worker.synthetic_batch` makes them.
    """

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.embeddings = Embeddings(definition)
        self.layers = nn.CellList([Layer(definition) for _ in range(definition.layers)])
        self.masked_words = MaskedTokenHead(definition, self.embeddings.word)
        self.pooler = nn.Dense(hidden, hidden)
        self.next_sentence = nn.Dense(hidden, 2)

    def construct(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        masked_positions: Tensor,
    ) -> Tuple[Tensor, Tensor]:
        x = self.embeddings(input_ids, token_type_ids)
        for layer in self.layers:
            x = layer(x)
        pooled = ops.tanh(self.pooler(x[:, 0]))
        return self.masked_words(x, masked_positions), self.next_sentence(pooled)


def compute_loss(
    definition: Definition, logits: Tuple[Tensor, Tensor], batch: Dict[str, Tensor]
) -> Tensor:
    """Return the mean masked-token cross-entropy plus the mean next-sentence cross-entropy."""
    tokens, next_sentence = logits
    tokens = tokens.reshape((-1, tokens.shape[-1]))
    return ops.cross_entropy(tokens, batch["masked_ids"].reshape(-1)) + ops.cross_entropy(
        next_sentence, batch["next_sentence_labels"]
    )
