"""Ids of a sequence -> some of them masked, as BERT's words to predict are."""

from typing import TYPE_CHECKING, Any, Tuple

from dlperf_slurm.worker.datasets.description import TextDescription

if TYPE_CHECKING:
    from numpy.random import RandomState
    from numpy.typing import NDArray


# Devlin et al. 2018, section 3.1: 80 % become the mask, 10 % a random word, 10 % stay as they are
MASKED_PART = 0.8
CHANGED_PART = 0.9


def mask_words(
    input_ids: "NDArray[Any]",
    words: "NDArray[Any]",
    count: int,
    text: TextDescription,
    random: "RandomState",
) -> "Tuple[NDArray[Any], NDArray[Any], NDArray[Any]]":
    """(masked input_ids, masked_positions, masked_ids) with `count` of the positions `words`.

    Positions ascend without repeats; ids are those before masking. int64 all.
    """
    import numpy

    positions = numpy.sort(random.permutation(words)[:count]).astype(numpy.int64)
    draws = random.random_sample(count)
    replacements = random.randint(text.first_word_id, text.vocabulary_size, count)
    replacements[draws < MASKED_PART] = text.mask_id
    masked: "NDArray[Any]" = input_ids.astype(numpy.int64)
    masked_ids = masked[positions]
    masked[positions] = numpy.where(draws < CHANGED_PART, replacements, masked_ids)
    return masked, positions, masked_ids
