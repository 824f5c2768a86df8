"""A model's definition -> one synthetic batch of NumPy arrays, the same in every framework."""

from typing import TYPE_CHECKING, Any, Dict, Union

from dlperf_slurm.worker.models import bert, resnet50

if TYPE_CHECKING:
    from numpy.random import RandomState
    from numpy.typing import NDArray

    Batch = Dict[str, NDArray[Any]]


def make_batch(
    definition: Union[bert.Definition, resnet50.Definition], batch_size: int, seed: int, rank: int
) -> "Batch":
    """The batch of one rank: samples rank * batch_size and following of one endless stream.

    So the joined batch of `world_size` ranks, one after the other, is that of rank 0 with
    `world_size * batch_size`. The same arguments give the same bits in every framework's
    environment; seed and all sample numbers are in 0 ... 2**32 - 1.
    """
    import numpy

    # One sample at a time: the generator's float64 would need twice the images' memory.
    batch: "Batch" = {}
    for index in range(batch_size):
        # RandomState's streams are frozen (NEP 19); Generator's may change between NumPy versions.
        random = numpy.random.RandomState([seed, rank * batch_size + index])
        if isinstance(definition, bert.Definition):
            sample = _make_sequence(definition, random)
        else:
            sample = _make_image(definition, random)
        for name, value in sample.items():
            if name not in batch:
                batch[name] = numpy.empty((batch_size, *value.shape), value.dtype)
            batch[name][index] = value
    return batch


def _make_image(definition: resnet50.Definition, random: "RandomState") -> "Batch":
    """images: float32 [channel, height, width] ~ N(0, 1); labels: int64 []."""
    import numpy

    shape = (definition.IMAGE_CHANNELS, definition.image_size, definition.image_size)
    return {
        "images": random.standard_normal(shape).astype(numpy.float32),
        "labels": numpy.array(random.randint(0, definition.classes), numpy.int64),
    }


def _make_sequence(definition: bert.Definition, random: "RandomState") -> "Batch":
    """Two sentences that fill the sequence: no padding, so every framework does the same work.

    int64 all; input_ids, token_type_ids, attention_mask: [sequence_length]; masked_positions
    (ascending, never the first, no repeats), masked_ids: [predictions_per_sequence];
    next_sentence_labels: [].
    """
    import numpy

    length = definition.sequence_length
    input_ids = random.randint(0, definition.vocabulary_size, length, dtype=numpy.int64)
    token_type_ids: "NDArray[Any]" = numpy.zeros(length, numpy.int64)
    token_type_ids[length // 2 :] = min(1, definition.type_vocabulary_size - 1)
    order = 1 + numpy.argsort(random.random_sample(length - 1))
    masked_positions = numpy.sort(order[: definition.predictions_per_sequence])
    masked_ids = input_ids[masked_positions]
    input_ids[masked_positions] = definition.MASK_ID
    return {
        "input_ids": input_ids,
        "token_type_ids": token_type_ids,
        "attention_mask": numpy.ones(length, numpy.int64),
        "masked_positions": masked_positions.astype(numpy.int64),
        "masked_ids": masked_ids,
        "next_sentence_labels": numpy.array(random.randint(0, 2), numpy.int64),
    }
