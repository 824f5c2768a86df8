"""LLaMA pre-training: a decoder-only transformer that predicts the next token (Touvron 2023).

The model is that of Touvron et al. 2023, with the grouped-query attention of Llama 2; rotary
position embedding is that of Su et al. 2021, with element i of a head paired with element i +
head_size / 2.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Iterator, Mapping, Tuple

from dlperf_slurm.worker.annotations import Array, Arrays, RandomState
from dlperf_slurm.worker.models import (
    Parameter,
    Transformer,
    Verification,
    list_linear,
    list_normalization,
)
from dlperf_slurm.worker.update_rule import ADAMW, Rule

PUBLISHED_NAME = "LLaMA"
SAMPLE_UNIT = "sequences"
INPUT = "packed_tokens"
DATASET = "text"
INPUTS = ("input_ids",)
HAS_ACCURACY = False
GENERATES = True
HAS_BATCH_STATISTICS = False
LAYERS = ("embedding", "attention", "root mean square normalization")
ZERO_GRADIENTS = ()
# Parameters are those of the model cards. Llama 3.2's scaled rotary frequencies, for texts longer
# than 8,192 tokens, are left out: they do not change the cost.
_LLAMA_3 = {"sequence_length": 8192, "vocabulary_size": 128256, "rotary_theta": 500000.0}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "tinyllama-1.1b": {
        "sequence_length": 2048,
        "layers": 22,
        "hidden_size": 2048,
        "heads": 32,
        "kv_heads": 4,
        "intermediate_size": 5632,
    },
    "llama-3.2-1b": {
        **_LLAMA_3,
        "layers": 16,
        "hidden_size": 2048,
        "heads": 32,
        "kv_heads": 8,
        "intermediate_size": 8192,
        "tied_embedding": True,
    },
    "llama-3.2-3b": {
        **_LLAMA_3,
        "layers": 28,
        "hidden_size": 3072,
        "heads": 24,
        "kv_heads": 8,
        "intermediate_size": 8192,
        "tied_embedding": True,
    },
    "llama-7b": {
        "sequence_length": 2048,
        "layers": 32,
        "hidden_size": 4096,
        "heads": 32,
        "kv_heads": 32,
        "intermediate_size": 11008,
        "normalization_epsilon": 1e-6,
    },
    "llama-2-7b": {
        "sequence_length": 4096,
        "layers": 32,
        "hidden_size": 4096,
        "heads": 32,
        "kv_heads": 32,
        "intermediate_size": 11008,
    },
    "llama-3-8b": {
        **_LLAMA_3,
        "layers": 32,
        "hidden_size": 4096,
        "heads": 32,
        "kv_heads": 8,
        "intermediate_size": 14336,
    },
}
VERIFICATION = Verification(
    # two query heads per key head, and heads large enough for several rotary frequencies
    model_parameters={
        "sequence_length": 32,
        "layers": 2,
        "hidden_size": 128,
        "heads": 4,
        "kv_heads": 2,
        "intermediate_size": 256,
        "vocabulary_size": 500,
    },
    batch_size_per_device=4,
    gradient_tolerance=1e-5,
)


@dataclass(frozen=True)
class Definition(Transformer):
    """Sizes of the network and its fixed hyper-parameters.

    The loss is the mean cross-entropy of the next token at each position. No layer has a bias. The
    published sizes are presets; the default has the width and depth of BERT-base.
    """

    sequence_length: int = 1024
    layers: int = 12
    hidden_size: int = 768
    heads: int = 12
    kv_heads: int = 12
    intermediate_size: int = 3072
    vocabulary_size: int = 32000
    rotary_theta: float = 10000.0
    normalization_epsilon: float = 1e-5
    tied_embedding: bool = False

    LEAST: ClassVar[Mapping[str, int]] = {"vocabulary_size": 2}
    WEIGHT_STANDARD_DEVIATION: ClassVar[float] = 0.02
    RULE: ClassVar[Rule] = Rule(
        ADAMW, learning_rate=3e-4, weight_decay=0.1, betas=(0.9, 0.95), epsilon=1e-5
    )
    CLIP_GLOBAL_NORM: ClassVar[float] = 1.0

    @property
    def kv_size(self) -> int:
        """Width of all key heads together, kv_heads * head_size; that of all value heads too."""
        return self.kv_heads * self.head_size

    def make_rotation(self) -> Tuple[Array, Array]:
        """Return cosines and sines of rotary positions, float32 [sequence_length, head_size / 2].

        At position p, pair i of a head is rotated by the angle p * rotary_theta^(-2 i / head_size).
        The pair (x[i], x[i + head_size / 2]) = (x1, x2) becomes (x1 cos - x2 sin, x2 cos + x1 sin).
        """
        import numpy

        half = self.head_size // 2
        frequencies = float(self.rotary_theta) ** (-numpy.arange(half) / half)
        angles = numpy.outer(numpy.arange(self.sequence_length), frequencies)
        return numpy.cos(angles).astype(numpy.float32), numpy.sin(angles).astype(numpy.float32)

    def list_parameters(self) -> Iterator[Parameter]:
        """Yield name, shape and initial distribution of each parameter; a tied head is left out."""
        hidden, inner, kv_size = self.hidden_size, self.intermediate_size, self.kv_size
        list_matrix = partial(
            list_linear, standard_deviation=self.WEIGHT_STANDARD_DEVIATION, has_bias=False
        )
        list_scale = partial(list_normalization, has_bias=False)
        yield from list_matrix("embedding", hidden, self.vocabulary_size)
        for index in range(self.layers):
            layer = f"layers.{index}"
            yield from list_scale(f"{layer}.attention_normalization", hidden)
            yield from list_matrix(f"{layer}.attention.query", hidden, hidden)
            yield from list_matrix(f"{layer}.attention.key", hidden, kv_size)
            yield from list_matrix(f"{layer}.attention.value", hidden, kv_size)
            yield from list_matrix(f"{layer}.attention.output", hidden, hidden)
            yield from list_scale(f"{layer}.feed_forward_normalization", hidden)
            yield from list_matrix(f"{layer}.gate", hidden, inner)
            yield from list_matrix(f"{layer}.up", hidden, inner)
            yield from list_matrix(f"{layer}.down", inner, hidden)
        yield from list_scale("normalization", hidden)
        if not self.tied_embedding:
            yield from list_matrix("head", hidden, self.vocabulary_size)

    @property
    def flops_per_sample(self) -> int:
        """FLOPs of one sample's forward pass; 3.2e11 by default.

        2 per weight and token, except for the embedding's look-up, and both products of attention
        over the whole sequence, though a causal kernel needs half of them (Chowdhery et al. 2022,
        appendix B).
        """
        hidden, length = self.hidden_size, self.sequence_length
        attention = 2 * hidden * (hidden + self.kv_size) + 2 * length * hidden
        feed_forward = 3 * hidden * self.intermediate_size
        head = hidden * self.vocabulary_size
        return 2 * length * (self.layers * (attention + feed_forward) + head)

    def count_decoded_values(self, batch_size: int, positions: float) -> Tuple[int, float]:
        """Return how many weights and how many cached values one decode step of a batch reads.

        `positions` is the mean number of cached positions per sequence. The embedding is not
        counted unless it is the head too: only one row per sequence is read.
        """
        embedding = 0 if self.tied_embedding else self.vocabulary_size * self.hidden_size
        cache = 2 * self.layers * self.kv_size * positions * batch_size
        return self.parameter_count - embedding, cache

    @property
    def tokens_per_sample(self) -> int:
        return self.sequence_length

    def make_sample(self, random: RandomState) -> Arrays:
        """Make a full sequence of random ids, so that all frameworks do the same work.

        input_ids and labels (the token after each) are int64 [sequence_length].
        """
        import numpy

        ids = random.randint(0, self.vocabulary_size, self.sequence_length + 1, dtype=numpy.int64)
        return {"input_ids": ids[:-1], "labels": ids[1:]}

    def find_conflicts(self) -> Iterator[str]:
        if self.hidden_size % (2 * self.heads):
            yield (
                f"hidden_size is {self.hidden_size}; allowed: a multiple of twice the heads "
                f"({2 * self.heads}), because rotary embeddings rotate pairs of values"
            )
        if self.heads % self.kv_heads:
            yield f"kv_heads is {self.kv_heads}; allowed: a divisor of heads ({self.heads})"
        if not self.rotary_theta > 0:
            yield f"rotary_theta is {self.rotary_theta}; allowed: more than 0"
        if not 0 < self.normalization_epsilon < 1:
            yield f"normalization_epsilon is {self.normalization_epsilon}; allowed: 0 < value < 1"
