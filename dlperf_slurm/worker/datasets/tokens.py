"""A folder of tokenized text -> BERT pre-training samples: masked tokens and next sentence.

    DIRECTORY/dataset.json  DIRECTORY/train/*.npy  DIRECTORY/val/*.npy

dataset.json is a TextDescription; the arrays are those of `text`. The text has ordinary tokens
only: [CLS] and [SEP] are added here.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Tuple

from dlperf_slurm.worker.datasets.description import (
    DESCRIPTION_FILE,
    TRAIN_SPLIT,
    DataError,
    TextDescription,
    read_description,
)
from dlperf_slurm.worker.datasets.text import open_text

if TYPE_CHECKING:
    from typing import Protocol

    from numpy.random import RandomState
    from numpy.typing import NDArray

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


def open_folder(
    data_dir: str, split: str, definition: "MaskedTokenModel", seed: int
) -> "TokenFolder":
    """Open one split of a tokenized text.

    Raises DataError, with a remedy, if the folder is not such a text or does not fit the model.
    """
    return TokenFolder(data_dir, split, definition, seed)


class TokenFolder:
    """One split of a text, memory-mapped; its samples cover the whole text in order.

    A sample is two segments that fill the sequence. The first starts at a sentence and ends with
    the last sentence that fits into the first half; a longer sentence is split. The second is the
    text that follows, into the next documents if needed (Liu et al. 2019, FULL-SENTENCES). Every
    second time, on average, it starts at a random sentence of another document instead (Devlin et
    al. 2018).
    """

    def __init__(
        self, data_dir: str, split: str, definition: "MaskedTokenModel", seed: int
    ) -> None:
        self._arguments = (data_dir, split, definition, seed)
        self._definition = definition
        self._seed = seed
        self._is_training = split == TRAIN_SPLIT
        self._description = describe_text(data_dir, definition)
        self._text_tokens = definition.sequence_length - SPECIAL_TOKENS
        folder = Path(data_dir) / split
        self._text = open_text(folder)
        documents = len(self._text.document_starts)
        if documents < 2 or len(self) == 0:
            raise DataError(
                f"{str(folder)!r} has {len(self._text.ids)} token ids in {documents} documents; "
                f"one sequence of the model needs {self._text_tokens} ids from two "
                "documents; use a larger data set"
            )

    def __reduce__(self) -> Any:
        # a copy opens the files again: pickling a memory map would read and send the whole array
        return type(self), self._arguments

    def __len__(self) -> int:
        return len(self._text.ids) // self._text_tokens

    def read_sample(self, index: int, epoch: int) -> "Dict[str, NDArray[Any]]":
        """Return a sample with the keys and shapes of a synthetic one.

        next_sentence_labels is 1 if the second segment is a random one.
        """
        import numpy

        # validation masks the same tokens in each epoch
        epoch = epoch if self._is_training else 0
        random = numpy.random.RandomState([self._seed, epoch, index])
        first, second, is_next = self._choose_segments(index * self._text_tokens, random)
        self._check_ids(first, second)
        input_ids, token_type_ids, ordinary = self._join(first, second)
        count = self._definition.predictions_per_sequence
        masked = mask_tokens(input_ids, ordinary, count, self._description, random)
        input_ids, masked_positions, masked_ids = masked
        return {
            "input_ids": input_ids,
            "token_type_ids": token_type_ids,
            "masked_positions": masked_positions,
            "masked_ids": masked_ids,
            "next_sentence_labels": numpy.array(0 if is_next else 1, numpy.int64),
        }

    def _choose_segments(
        self, position: int, random: "RandomState"
    ) -> "Tuple[NDArray[Any], NDArray[Any], bool]":
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

    def _check_ids(self, *segments: "NDArray[Any]") -> None:
        least = min(int(segment.min()) for segment in segments)
        largest = max(int(segment.max()) for segment in segments)
        if least < 0 or largest >= self._description.vocabulary_size:
            raise DataError(
                f"{self._arguments[0]!r} has ids {least} to {largest}, but the vocabulary_size in "
                f"its {DESCRIPTION_FILE} is {self._description.vocabulary_size}; correct one of "
                "them"
            )

    def _join(
        self, first: "NDArray[Any]", second: "NDArray[Any]"
    ) -> "Tuple[NDArray[Any], NDArray[Any], NDArray[Any]]":
        """Return input_ids, token_type_ids [sequence_length] and positions of ordinary tokens."""
        import numpy

        classification = [self._description.classification_id]
        separator = [self._description.separator_id]
        input_ids = numpy.concatenate([classification, first, separator, second, separator])
        token_type_ids: "NDArray[Any]" = numpy.zeros(len(input_ids), numpy.int64)
        token_type_ids[len(first) + 2 :] = min(1, self._definition.type_vocabulary_size - 1)
        special = [0, len(first) + 1, len(input_ids) - 1]
        return input_ids, token_type_ids, numpy.delete(numpy.arange(len(input_ids)), special)


def mask_tokens(
    input_ids: "NDArray[Any]",
    ordinary: "NDArray[Any]",
    count: int,
    text: TextDescription,
    random: "RandomState",
) -> "Tuple[NDArray[Any], NDArray[Any], NDArray[Any]]":
    """Mask `count` tokens: return masked input_ids, masked_positions and masked_ids.

    `ordinary` are the positions of tokens that may be masked. Masked positions ascend without
    repeats; masked_ids are the ids before masking. All are int64.
    """
    import numpy

    positions = numpy.sort(random.permutation(ordinary)[:count]).astype(numpy.int64)
    draws = random.random_sample(count)
    replacements = random.randint(text.first_word_id, text.vocabulary_size, count)
    replacements[draws < MASKED_PART] = text.mask_id
    masked: "NDArray[Any]" = input_ids.astype(numpy.int64)
    masked_ids = masked[positions]
    masked[positions] = numpy.where(draws < CHANGED_PART, replacements, masked_ids)
    return masked, positions, masked_ids


def describe_text(data_dir: str, definition: "MaskedTokenModel") -> TextDescription:
    """Read dataset.json and check it against the model.

    Raises DataError if the model cannot use this text.
    """
    path = str(Path(data_dir) / DESCRIPTION_FILE)
    text = read_text_description(data_dir)
    text_tokens = definition.sequence_length - SPECIAL_TOKENS
    check_vocabulary(text, data_dir, definition.vocabulary_size)
    if text.mask_id != definition.MASK_ID:
        raise DataError(
            f"{path!r}: mask_id is {text.mask_id}, but the model needs {definition.MASK_ID}; to "
            "generate such a data set: `dlperf-slurm data make text`"
        )
    if text_tokens < 2 or definition.predictions_per_sequence > text_tokens:
        raise DataError(
            f"a sequence_length of {definition.sequence_length} leaves {text_tokens} tokens "
            "for text; needed: at least 2, and at least predictions_per_sequence "
            f"({definition.predictions_per_sequence})"
        )
    return text


def read_text_description(data_dir: str) -> TextDescription:
    """Read dataset.json.

    Raises DataError, with a remedy, if it cannot be read.
    """
    try:
        return read_description(Path(data_dir), TextDescription)
    except OSError as error:
        path = str(Path(data_dir) / DESCRIPTION_FILE)
        raise DataError(
            f"{path!r} cannot be read ({error.strerror}); to generate such a data set: "
            "`dlperf-slurm data make text`"
        ) from error


def check_vocabulary(text: TextDescription, data_dir: str, vocabulary_size: int) -> None:
    """Raise DataError if the text's vocabulary is larger than the model's."""
    if text.vocabulary_size > vocabulary_size:
        path = str(Path(data_dir) / DESCRIPTION_FILE)
        raise DataError(
            f"{path!r}: vocabulary_size is {text.vocabulary_size}, but the model's is "
            f"{vocabulary_size}; set it in the [[model]] table of the matrix, or generate a data "
            f"set with --vocabulary {vocabulary_size}"
        )
