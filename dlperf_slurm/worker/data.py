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
    """The batch of one rank; seed and rank are in 0 ... 2**32 - 1.

    The same arguments give the same bits in every framework's environment.
    """
    import numpy

    # RandomState's streams are frozen (NEP 19); Generator's may change between NumPy versions.
    random = numpy.random.RandomState([seed, rank])
    if isinstance(definition, bert.Definition):
        return _make_sequences(definition, batch_size, random)
    return _make_images(definition, batch_size, random)


def _make_images(
    definition: resnet50.Definition, batch_size: int, random: "RandomState"
) -> "Batch":
    """images: float32 [batch, channel, height, width] ~ N(0, 1); labels: int64 [batch]."""
    import numpy

    image_shape = (definition.IMAGE_CHANNELS, definition.image_size, definition.image_size)
    images = numpy.empty((batch_size,) + image_shape, numpy.float32)
    # One image at a time: the generator's float64 would need twice the batch's memory.
    for index in range(batch_size):
        images[index] = random.standard_normal(image_shape)
    labels = random.randint(0, definition.classes, batch_size, dtype=numpy.int64)
    return {"images": images, "labels": labels}


def _make_sequences(definition: bert.Definition, batch_size: int, random: "RandomState") -> "Batch":
    """Two sentences that fill the sequence: no padding, so every framework does the same work.

    int64 all; input_ids, token_type_ids, attention_mask: [batch, sequence_length];
    masked_positions (ascending, never the first, no repeats), masked_ids: [batch,
    predictions_per_sequence]; next_sentence_labels: [batch].
    """
    import numpy

    length = definition.sequence_length
    shape = (batch_size, length)
    input_ids = random.randint(0, definition.vocabulary_size, shape, dtype=numpy.int64)
    token_type_ids: "NDArray[Any]" = numpy.zeros(shape, numpy.int64)
    token_type_ids[:, length // 2 :] = min(1, definition.type_vocabulary_size - 1)
    order = 1 + numpy.argsort(random.random_sample((batch_size, length - 1)), axis=1)
    masked_positions = numpy.sort(order[:, : definition.predictions_per_sequence], axis=1)
    masked_ids = numpy.take_along_axis(input_ids, masked_positions, axis=1)
    numpy.put_along_axis(input_ids, masked_positions, definition.MASK_ID, axis=1)
    return {
        "input_ids": input_ids,
        "token_type_ids": token_type_ids,
        "attention_mask": numpy.ones(shape, numpy.int64),
        "masked_positions": masked_positions.astype(numpy.int64),
        "masked_ids": masked_ids,
        "next_sentence_labels": random.randint(0, 2, batch_size, dtype=numpy.int64),
    }
