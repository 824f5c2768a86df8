"""A folder of tokenized text -> BERT pre-training samples: masked tokens and next sentence.

The files are those of `text`. The text has ordinary tokens only: [CLS] and [SEP] are added here.
"""

import os
from typing import Tuple

from dlperf_slurm.worker.annotations import Array, Arrays, Protocol, RandomState
from dlperf_slurm.worker.datasets.description import (
    DESCRIPTION_FILE,
    TRAIN_SPLIT,
    DataError,
    TextDescription,
)
from dlperf_slurm.worker.datasets.text import TextSplit


class MaskedTokenModel(Protocol):
    """What a model of two segments with masked tokens must define."""

    MASK_ID: int

    @property
    def sequence_length(self) -> int: ...

    @property
    def vocabulary_size(self) -> int: ...

    @property
    def type_vocabulary_size(self) -> int: ...

    @property
    def predictions_per_sequence(self) -> int: ...


# [CLS], and [SEP] after each of the two segments
SPECIAL_TOKENS = 3

# Devlin et al. 2018, section 3.1: 80 % become the mask, 10 % a random token, 10 % stay unchanged
MASKED_PART = 0.8
CHANGED_PART = 0.9


class Folder:
    """One split of a text; its samples cover the whole text in order.

    A sample is two segments that fill the sequence. The first starts at a sentence and ends with
    the last sentence that fits into the first half; a longer sentence is split. The second is the
    text that follows, into the next documents if needed (Liu et al. 2019, FULL-SENTENCES). Every
    second time, on average, it starts at a random sentence of another document instead (Devlin et
    al. 2018).
    """

    def __init__(self, data_dir: str, split: str, definition: MaskedTokenModel, seed: int) -> None:
        self._definition = definition
        self._seed = seed
        self._is_training = split == TRAIN_SPLIT
        self._text_tokens = definition.sequence_length - SPECIAL_TOKENS
        self._text = TextSplit(data_dir, split, definition.vocabulary_size)
        mask_id = self._text.description.mask_id
        if mask_id != definition.MASK_ID:
            raise DataError(
                f"{os.path.join(data_dir, DESCRIPTION_FILE)!r}: mask_id is {mask_id}, but the "
                f"model needs {definition.MASK_ID}; to generate such a data set: "
                "`dlperf-slurm data make text`"
            )
        if self._text_tokens < 2 or definition.predictions_per_sequence > self._text_tokens:
            raise DataError(
                f"a sequence_length of {definition.sequence_length} leaves {self._text_tokens} "
                "tokens for text; needed: at least 2, and at least predictions_per_sequence "
                f"({definition.predictions_per_sequence})"
            )
        documents = len(self._text.document_starts)
        if documents < 2 or len(self) == 0:
            raise DataError(
                f"{os.path.join(data_dir, split)!r} has {len(self._text.ids)} token ids in "
                f"{documents} documents; one sequence of the model needs {self._text_tokens} ids "
                "from two documents; use a larger data set"
            )

    def __len__(self) -> int:
        return len(self._text.ids) // self._text_tokens

    def read_sample(self, index: int, epoch: int) -> Arrays:
        """Return a sample of two text segments with masked tokens, as name -> int64 array.

        input_ids, token_type_ids: [sequence_length]; masked_positions, masked_ids:
        [predictions_per_sequence]; next_sentence_labels: [], 1 if the second segment is random.
        """
        import numpy

        # validation masks the same tokens in each epoch
        epoch = epoch if self._is_training else 0
        random = numpy.random.RandomState([self._seed, epoch, index])
        first, second, is_next = self._choose_segments(index * self._text_tokens, random)
        input_ids, token_type_ids, ordinary = self._join(first, second)
        count = self._definition.predictions_per_sequence
        masked = mask_tokens(input_ids, ordinary, count, self._text.description, random)
        input_ids, masked_positions, masked_ids = masked
        return {
            "input_ids": input_ids,
            "token_type_ids": token_type_ids,
            "masked_positions": masked_positions,
            "masked_ids": masked_ids,
            "next_sentence_labels": numpy.array(0 if is_next else 1, numpy.int64),
        }

    def _choose_segments(self, position: int, random: RandomState) -> Tuple[Array, Array, bool]:
        """Return both segments of the sample at `position`, and whether they are consecutive.

        They never are if the first segment ends its document.
        """
        text, half = self._text, self._text_tokens // 2
        sentence = text.find_sentence(position)
        begin = text.find_sentence_start(sentence)
        if position - begin >= half:
            begin = position
        document_end = text.find_sentence_start(text.find_document(sentence)[1])
        border = text.find_sentence_start(text.find_sentence(begin + half))
        end = min(border if border > begin else begin + half, document_end)
        is_next = bool(random.randint(2)) and end < document_end
        other = text.find_sentence_start(text.choose_other_sentence(sentence, random))
        second = text.read_ids(end if is_next else other, self._text_tokens - (end - begin))
        return text.read_ids(begin, end - begin), second, is_next

    def _join(self, first: Array, second: Array) -> Tuple[Array, Array, Array]:
        """Return input_ids, token_type_ids [sequence_length] and positions of ordinary tokens."""
        import numpy

        classification = [self._text.description.classification_id]
        separator = [self._text.description.separator_id]
        input_ids = numpy.concatenate([classification, first, separator, second, separator])
        token_type_ids: Array = numpy.zeros(len(input_ids), numpy.int64)
        token_type_ids[len(first) + 2 :] = min(1, self._definition.type_vocabulary_size - 1)
        special = [0, len(first) + 1, len(input_ids) - 1]
        return input_ids, token_type_ids, numpy.delete(numpy.arange(len(input_ids)), special)


def mask_tokens(
    input_ids: Array,
    ordinary: Array,
    count: int,
    text: TextDescription,
    random: RandomState,
) -> Tuple[Array, Array, Array]:
    """Mask `count` tokens: return masked input_ids, masked_positions and masked_ids.

    Of the masked tokens 80 % become the mask id of `text`, 10 % a random token, and 10 % stay.
    `ordinary` are the positions of tokens that may be masked. Masked positions ascend without
    repeats; masked_ids are the ids before masking. All are int64.
    """
    import numpy

    positions = numpy.sort(random.permutation(ordinary)[:count]).astype(numpy.int64)
    draws = random.random_sample(count)
    replacements = random.randint(text.first_word_id, text.vocabulary_size, count)
    replacements[draws < MASKED_PART] = text.mask_id
    masked: Array = input_ids.astype(numpy.int64)
    masked_ids = masked[positions]
    masked[positions] = numpy.where(draws < CHANGED_PART, replacements, masked_ids)
    return masked, positions, masked_ids
