"""BERT pre-training in MXNet, from the framework-neutral definition."""

from typing import Any, Dict, Tuple

import mxnet as mx
from mxnet.gluon import HybridBlock, nn

from dlperf_slurm.worker.frameworks.mxnet.layers import (
    Attention,
    compute_cross_entropy,
    compute_gelu,
    make_linear,
    make_normalization,
)
from dlperf_slurm.worker.models.bert import Definition


class Embeddings(HybridBlock):
    """Embed token ids and segment ids [batch, length] as hidden [batch, length, hidden_size]."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.word = nn.Embedding(definition.vocabulary_size, hidden)
        self.position = nn.Embedding(definition.max_positions, hidden)
        self.token_type = nn.Embedding(definition.type_vocabulary_size, hidden)
        self.normalization = make_normalization(hidden, definition.LAYER_NORM_EPSILON)
        self.dropout = nn.Dropout(definition.dropout)

    def hybrid_forward(self, F: Any, input_ids: Any, token_type_ids: Any) -> Any:
        positions = self.position(F.contrib.arange_like(input_ids, axis=1))
        x = self.word(input_ids) + self.token_type(token_type_ids)
        x = F.broadcast_add(x, F.expand_dims(positions, axis=0))
        return self.dropout(self.normalization(x))


class Layer(HybridBlock):
    """Post-norm layer: attention, then feed-forward, each with dropout, residual and layer norm."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, inner = definition.hidden_size, definition.intermediate_size
        self.attention = Attention(definition, definition.dropout)
        self.attention_normalization = make_normalization(hidden, definition.LAYER_NORM_EPSILON)
        self.intermediate = make_linear(hidden, inner)
        self.output = make_linear(inner, hidden)
        self.output_normalization = make_normalization(hidden, definition.LAYER_NORM_EPSILON)
        self.dropout = nn.Dropout(definition.dropout)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        x = self.attention_normalization(x + self.dropout(self.attention(x)))
        y = self.output(compute_gelu(F, self.intermediate(x)))
        return self.output_normalization(x + self.dropout(y))


class MaskedTokenHead(HybridBlock):
    """Masked-token head: [batch, length, hidden_size] -> [batch, predictions, vocabulary_size]."""

    def __init__(self, definition: Definition, word_embedding: nn.Embedding) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.transform = make_linear(hidden, hidden)
        self.normalization = make_normalization(hidden, definition.LAYER_NORM_EPSILON)
        self.decoder = make_linear(
            hidden, definition.vocabulary_size, params=word_embedding.collect_params()
        )

    def hybrid_forward(self, F: Any, x: Any, masked_positions: Any) -> Any:
        samples = F.expand_dims(F.contrib.arange_like(masked_positions, axis=0), axis=1)
        samples = F.broadcast_like(samples, masked_positions)
        gathered = F.gather_nd(x, F.stack(samples, masked_positions))
        return self.decoder(self.normalization(compute_gelu(F, self.transform(gathered))))


class Model(HybridBlock):
    """BERT for pre-training, with a masked-token head and a next-sentence head.

    Returns logits [batch, predictions, vocabulary_size] and [batch, 2]. All inputs are as
    `worker.synthetic_batch` makes them, but int32.
    """

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.embeddings = Embeddings(definition)
        self.layers = nn.HybridSequential()
        for _ in range(definition.layers):
            self.layers.add(Layer(definition))
        self.masked_words = MaskedTokenHead(definition, self.embeddings.word)
        self.pooler = make_linear(hidden, hidden)
        self.next_sentence = make_linear(hidden, 2)

    def hybrid_forward(
        self,
        F: Any,
        input_ids: Any,
        token_type_ids: Any,
        masked_positions: Any,
    ) -> Tuple[Any, Any]:
        x = self.embeddings(input_ids, token_type_ids)
        for layer in self.layers:
            x = layer(x)
        first = F.slice_axis(x, axis=1, begin=0, end=1).reshape(shape=(0, -1))
        pooled = F.tanh(self.pooler(first))
        return self.masked_words(x, masked_positions), self.next_sentence(pooled)


def compute_loss(
    definition: Definition,
    logits: Tuple[mx.nd.NDArray, mx.nd.NDArray],
    batch: Dict[str, mx.nd.NDArray],
) -> mx.nd.NDArray:
    """Return the mean masked-token cross-entropy plus the mean next-sentence cross-entropy."""
    tokens, next_sentence = logits
    return compute_cross_entropy(tokens, batch["masked_ids"]) + compute_cross_entropy(
        next_sentence, batch["next_sentence_labels"]
    )
