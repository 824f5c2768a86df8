"""BERT-base pre-training: masked tokens and next sentence (Devlin et al. 2018)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Iterator, Mapping

from dlperf_slurm.worker.annotations import Array, Arrays, RandomState
from dlperf_slurm.worker.models import (
    Parameter,
    Transformer,
    Verification,
    find_fraction_problem,
    list_linear,
    list_normalization,
)
from dlperf_slurm.worker.update_rule import ADAMW, Rule

PUBLISHED_NAME = "BERT-base"
SAMPLE_UNIT = "sequences"
INPUT = "tokens"
DATASET = "text"
INPUTS = ("input_ids", "token_type_ids", "masked_positions")
HAS_ACCURACY = False
GENERATES = False
HAS_BATCH_STATISTICS = False
LAYERS = ("embedding", "attention", "layer normalization")
# a key bias adds the same to all scores of a query, which softmax cancels
ZERO_GRADIENTS = (".attention.key.bias",)
PRESETS: Mapping[str, Mapping[str, Any]] = {}
VERIFICATION = Verification(
    model_parameters={
        "sequence_length": 32,
        "layers": 2,
        "hidden_size": 128,
        "heads": 4,
        "intermediate_size": 256,
        "vocabulary_size": 500,
        "max_positions": 64,
        "predictions_per_sequence": 5,
        "dropout": 0.0,
    },
    batch_size_per_device=4,
    # the tanh approximation of GELU would change a gradient by 6e-5
    gradient_tolerance=1e-5,
)


@dataclass(frozen=True)
class Definition(Transformer):
    """Sizes of the network and its fixed hyper-parameters.

    The decoder of masked tokens is the token embedding with a bias of its own. The loss is the mean
    cross-entropy of the masked tokens plus that of the next-sentence labels. GELU is the exact one,
    by erf. The full size has 110,106,428 parameters.
    """

    sequence_length: int = 128
    layers: int = 12
    hidden_size: int = 768
    heads: int = 12
    intermediate_size: int = 3072
    vocabulary_size: int = 30522
    max_positions: int = 512
    type_vocabulary_size: int = 2
    predictions_per_sequence: int = 20
    dropout: float = 0.1

    MASK_ID: ClassVar[int] = 103
    LEAST: ClassVar[Mapping[str, int]] = {"vocabulary_size": MASK_ID + 1}
    WEIGHT_STANDARD_DEVIATION: ClassVar[float] = 0.02
    LAYER_NORM_EPSILON: ClassVar[float] = 1e-12
    RULE: ClassVar[Rule] = Rule(
        ADAMW, learning_rate=1e-4, weight_decay=0.01, betas=(0.9, 0.999), epsilon=1e-6
    )
    CLIP_GLOBAL_NORM: ClassVar[float] = 1.0

    def list_parameters(self) -> Iterator[Parameter]:
        hidden, inner = self.hidden_size, self.intermediate_size
        deviation = self.WEIGHT_STANDARD_DEVIATION
        for name, rows in (
            ("word", self.vocabulary_size),
            ("position", self.max_positions),
            ("token_type", self.type_vocabulary_size),
        ):
            yield Parameter(f"embeddings.{name}.weight", (rows, hidden), 0.0, deviation)
        yield from list_normalization("embeddings.normalization", hidden)
        for index in range(self.layers):
            layer = f"layers.{index}"
            for name in ("query", "key", "value", "output"):
                yield from list_linear(f"{layer}.attention.{name}", hidden, hidden, deviation)
            yield from list_normalization(f"{layer}.attention_normalization", hidden)
            yield from list_linear(f"{layer}.intermediate", hidden, inner, deviation)
            yield from list_linear(f"{layer}.output", inner, hidden, deviation)
            yield from list_normalization(f"{layer}.output_normalization", hidden)
        yield from list_linear("masked_words.transform", hidden, hidden, deviation)
        yield from list_normalization("masked_words.normalization", hidden)
        yield Parameter("masked_words.decoder.bias", (self.vocabulary_size,), 0.0)
        yield from list_linear("pooler", hidden, hidden, deviation)
        yield from list_linear("next_sentence", hidden, 2, deviation)

    @property
    def flops_per_sample(self) -> int:
        """FLOPs of one sample's forward pass; 2.3e10 at full size.

        Embedding look-ups count as 0; the decoder computes only the masked positions.
        """
        hidden, length = self.hidden_size, self.sequence_length
        projections = length * (4 * hidden**2 + 2 * hidden * self.intermediate_size)
        attention = 2 * length**2 * hidden
        mlm_head = self.predictions_per_sequence * hidden * (hidden + self.vocabulary_size)
        nsp_head = hidden * (hidden + 2)
        return 2 * (self.layers * (projections + attention) + mlm_head + nsp_head)

    def make_sample(self, random: RandomState) -> Arrays:
        """Make two random sentences that fill the sequence, so that all frameworks do equal work.

        All arrays are int64. input_ids, token_type_ids: [sequence_length]; masked_positions
        (ascending, never the first, no repeats), masked_ids: [predictions_per_sequence];
        next_sentence_labels: [].
        """
        import numpy

        length = self.sequence_length
        input_ids = random.randint(0, self.vocabulary_size, length, dtype=numpy.int64)
        token_type_ids: Array = numpy.zeros(length, numpy.int64)
        token_type_ids[length // 2 :] = min(1, self.type_vocabulary_size - 1)
        order = 1 + numpy.argsort(random.random_sample(length - 1))
        masked_positions = numpy.sort(order[: self.predictions_per_sequence])
        masked_ids = input_ids[masked_positions]
        input_ids[masked_positions] = self.MASK_ID
        return {
            "input_ids": input_ids,
            "token_type_ids": token_type_ids,
            "masked_positions": masked_positions.astype(numpy.int64),
            "masked_ids": masked_ids,
            "next_sentence_labels": numpy.array(random.randint(0, 2), numpy.int64),
        }

    def find_conflicts(self) -> Iterator[str]:
        yield from super().find_conflicts()
        if self.sequence_length > self.max_positions:
            yield (
                f"sequence_length is {self.sequence_length}; allowed: at most max_positions "
                f"({self.max_positions})"
            )
        if self.predictions_per_sequence >= self.sequence_length:
            yield (
                f"predictions_per_sequence is {self.predictions_per_sequence}; allowed: less than "
                f"sequence_length ({self.sequence_length})"
            )
        yield from find_fraction_problem("dropout", self.dropout)
