"""BERT pre-training in MegEngine, from the framework-neutral definition."""

from typing import Dict, Tuple

from megengine import Tensor
from megengine import functional as F
from megengine import module as nn

from dlperf_slurm.worker.frameworks.megengine.layers import Attention
from dlperf_slurm.worker.models.bert import Definition


class Embeddings(nn.Module):
    """Embed token ids and segment ids [batch, length] as hidden [batch, length, hidden_size]."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.word = nn.Embedding(definition.vocabulary_size, hidden)
        self.position = nn.Embedding(definition.max_positions, hidden)
        self.token_type = nn.Embedding(definition.type_vocabulary_size, hidden)
        self.normalization = nn.LayerNorm(hidden, eps=definition.LAYER_NORM_EPSILON)
        self.dropout = nn.Dropout(definition.dropout)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
        positions = self.position.weight[: input_ids.shape[1]]
        x = self.word(input_ids) + self.token_type(token_type_ids) + positions
        return self.dropout(self.normalization(x))


class Layer(nn.Module):
    """Post-norm layer: attention, then feed-forward, each with dropout, residual and layer norm."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, inner = definition.hidden_size, definition.intermediate_size
        self.attention = Attention(definition, definition.dropout)
        self.attention_normalization = nn.LayerNorm(hidden, eps=definition.LAYER_NORM_EPSILON)
        self.intermediate = nn.Linear(hidden, inner)
        self.output = nn.Linear(inner, hidden)
        self.output_normalization = nn.LayerNorm(hidden, eps=definition.LAYER_NORM_EPSILON)
        self.dropout = nn.Dropout(definition.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention_normalization(x + self.dropout(self.attention(x)))
        y = self.output(F.gelu(self.intermediate(x)))
        return self.output_normalization(x + self.dropout(y))


class MaskedTokenHead(nn.Module):
    """Masked-token head: [batch, length, hidden_size] -> [batch, predictions, vocabulary_size]."""

    def __init__(self, definition: Definition, word_embedding: nn.Embedding) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.transform = nn.Linear(hidden, hidden)
        self.normalization = nn.LayerNorm(hidden, eps=definition.LAYER_NORM_EPSILON)
        self.decoder = nn.Linear(hidden, definition.vocabulary_size)
        self.decoder.weight = word_embedding.weight

    def forward(self, x: Tensor, masked_positions: Tensor) -> Tensor:
        samples = F.expand_dims(F.arange(x.shape[0], dtype="int32"), axis=1)
        # in a trace the shape of the gathered tensor is unknown
        gathered = x[samples, masked_positions].reshape(*masked_positions.shape, x.shape[-1])
        return self.decoder(self.normalization(F.gelu(self.transform(gathered))))


class Model(nn.Module):
    """BERT for pre-training, with a masked-token head and a next-sentence head.

    Returns logits [batch, predictions, vocabulary_size] and [batch, 2]. All inputs are as
    `worker.synthetic_batch` makes them, but int32.
    """

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.embeddings = Embeddings(definition)
        self.layers = [Layer(definition) for _ in range(definition.layers)]
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
    return F.nn.cross_entropy(tokens, batch["masked_ids"], axis=2) + F.nn.cross_entropy(
        next_sentence, batch["next_sentence_labels"]
    )
