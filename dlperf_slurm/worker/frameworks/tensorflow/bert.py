"""BERT pre-training in TensorFlow, from the framework-neutral definition."""

from typing import Dict, Tuple

import tensorflow as tf

from dlperf_slurm.worker.frameworks.tensorflow.layers import (
    Attention,
    Embedding,
    LayerNorm,
    Linear,
    drop_out,
    gelu,
    make_variable,
    multiply_rows,
)
from dlperf_slurm.worker.models.bert import Definition


class Embeddings(tf.Module):
    """Embed token ids and segment ids [batch, length] as hidden [batch, length, hidden_size]."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.word = Embedding(definition.vocabulary_size, hidden)
        self.position = Embedding(definition.max_positions, hidden)
        self.token_type = Embedding(definition.type_vocabulary_size, hidden)
        self.normalization = LayerNorm(hidden, epsilon=definition.LAYER_NORM_EPSILON)
        self.dropout = definition.dropout

    def __call__(
        self, input_ids: tf.Tensor, token_type_ids: tf.Tensor, training: bool
    ) -> tf.Tensor:
        positions = self.position.weight[: input_ids.shape.as_list()[1]]
        x = self.word(input_ids) + self.token_type(token_type_ids) + positions
        return drop_out(self.normalization(x), self.dropout, training)


class Layer(tf.Module):
    """Post-norm layer: attention, then feed-forward, each with dropout, residual and layer norm."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        hidden, inner = definition.hidden_size, definition.intermediate_size
        self.attention = Attention(definition, definition.dropout)
        self.attention_normalization = LayerNorm(hidden, epsilon=definition.LAYER_NORM_EPSILON)
        self.intermediate = Linear(hidden, inner)
        self.output = Linear(inner, hidden)
        self.output_normalization = LayerNorm(hidden, epsilon=definition.LAYER_NORM_EPSILON)
        self.dropout = definition.dropout

    def __call__(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        y = drop_out(self.attention(x, training), self.dropout, training)
        x = self.attention_normalization(x + y)
        y = self.output(gelu(self.intermediate(x)))
        return self.output_normalization(x + drop_out(y, self.dropout, training))


class Decoder(tf.Module):
    """hidden [..., hidden_size] -> logits [..., vocabulary_size]; shares the embedding's weight."""

    def __init__(self, word_embedding: Embedding) -> None:
        super().__init__()
        self.weight = word_embedding.weight
        self.bias = make_variable(self.weight.shape.as_list()[:1])

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return multiply_rows(x, self.weight, self.bias, transpose=True)


class MaskedTokenHead(tf.Module):
    """Masked-token head: [batch, length, hidden_size] -> [batch, predictions, vocabulary_size]."""

    def __init__(self, definition: Definition, word_embedding: Embedding) -> None:
        super().__init__()
        hidden = definition.hidden_size
        self.transform = Linear(hidden, hidden)
        self.normalization = LayerNorm(hidden, epsilon=definition.LAYER_NORM_EPSILON)
        self.decoder = Decoder(word_embedding)

    def __call__(self, x: tf.Tensor, masked_positions: tf.Tensor) -> tf.Tensor:
        gathered = tf.gather(x, masked_positions, batch_dims=1)
        return self.decoder(self.normalization(gelu(self.transform(gathered))))


class Model(tf.Module):
    """BERT for pre-training, with a masked-token head and a next-sentence head.

    Returns logits [batch, predictions, vocabulary_size] and [batch, 2]. All inputs are int64, as
    `worker.synthetic_batch` makes them. All layers after the embeddings compute in `compute_type`.
    """

    def __init__(self, definition: Definition, compute_type: tf.DType) -> None:
        super().__init__()
        self.compute_type = compute_type
        hidden = definition.hidden_size
        self.embeddings = Embeddings(definition)
        self.layers = [Layer(definition) for _ in range(definition.layers)]
        self.masked_words = MaskedTokenHead(definition, self.embeddings.word)
        self.pooler = Linear(hidden, hidden)
        self.next_sentence = Linear(hidden, 2)

    def __call__(
        self,
        input_ids: tf.Tensor,
        token_type_ids: tf.Tensor,
        masked_positions: tf.Tensor,
        training: bool,
    ) -> Tuple[tf.Tensor, tf.Tensor]:
        x = tf.cast(self.embeddings(input_ids, token_type_ids, training), self.compute_type)
        for layer in self.layers:
            x = layer(x, training)
        pooled = tf.tanh(self.pooler(x[:, 0]))
        return self.masked_words(x, masked_positions), self.next_sentence(pooled)


def compute_loss(
    definition: Definition, logits: Tuple[tf.Tensor, tf.Tensor], batch: Dict[str, tf.Tensor]
) -> tf.Tensor:
    """Return the mean masked-token plus the mean next-sentence cross-entropy, in float32."""
    tokens, next_sentence = (tf.cast(values, tf.float32) for values in logits)
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["masked_ids"], logits=tokens)
    ) + tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=batch["next_sentence_labels"], logits=next_sentence
        )
    )
