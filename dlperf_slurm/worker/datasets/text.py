"""A folder of tokenized text -> the ids, sentences and documents of a split, memory-mapped.

dataset.json                a TextDescription
SPLIT/ids.npy               uint16 or int32 [ids]: all token ids of the text, one after the other
SPLIT/sentence_starts.npy   int64 [sentences]: index into `ids` of each start, ascending from 0
SPLIT/document_starts.npy   int64 [documents]: index of its first sentence, ascending from 0
"""

from pathlib import Path
from typing import Any, Tuple

from dlperf_slurm.worker.annotations import Array, RandomState
from dlperf_slurm.worker.datasets.description import (
    DESCRIPTION_FILE,
    DataError,
    TextDescription,
    read_description,
)

IDS_FILE = "ids.npy"
SENTENCES_FILE = "sentence_starts.npy"
DOCUMENTS_FILE = "document_starts.npy"


class TextSplit:
    """One split of a text: its ids, sentences and documents.

    A position is an index into `ids`; positions past the end wrap around to 0.
    """

    def __init__(self, data_dir: str, split: str, vocabulary_size: int) -> None:
        """Open the files of a split for a model with this vocabulary.

        Raises DataError, with a remedy, if the files cannot be used or do not fit the model.
        """
        self._arguments = (data_dir, split, vocabulary_size)
        self.description = self._describe(vocabulary_size)
        folder = Path(data_dir) / split
        self.ids = _map_array(folder / IDS_FILE)
        self.sentence_starts = _map_array(folder / SENTENCES_FILE)
        self.document_starts = _map_array(folder / DOCUMENTS_FILE)
        for name, starts, end in (
            (SENTENCES_FILE, self.sentence_starts, len(self.ids)),
            (DOCUMENTS_FILE, self.document_starts, len(self.sentence_starts)),
        ):
            if not len(starts) or starts[0] != 0 or starts[-1] >= end:
                raise DataError(
                    f"the first value in {str(folder / name)!r} must be 0 and the last one below "
                    f"{end}; generate the data set again"
                )

    def __reduce__(self) -> Any:
        # a copy opens the files again: pickling a memory map would read and send the whole array
        return type(self), self._arguments

    def _describe(self, vocabulary_size: int) -> TextDescription:
        path = str(Path(self._arguments[0]) / DESCRIPTION_FILE)
        try:
            description = read_description(Path(self._arguments[0]), TextDescription)
        except OSError as error:
            raise DataError(
                f"{path!r} cannot be read ({error.strerror}); to generate such a data set: "
                "`dlperf-slurm data make text`"
            ) from error
        if description.vocabulary_size > vocabulary_size:
            raise DataError(
                f"{path!r}: vocabulary_size is {description.vocabulary_size}, but the model's is "
                f"{vocabulary_size}; set vocabulary_size in the [[model]] table of the matrix, or "
                f"generate a data set with --vocabulary {vocabulary_size}"
            )
        return description

    def read_ids(self, position: int, count: int) -> Array:
        """Return `count` token ids from `position` on, int64 [count]; after the end, from 0 on.

        Raises DataError for an id outside of the vocabulary, which would crash a device.
        """
        import numpy

        positions = numpy.arange(position, position + count)
        ids = numpy.asarray(self.ids.take(positions, mode="wrap"), numpy.int64)
        least, largest = int(ids.min()), int(ids.max())
        if least < 0 or largest >= self.description.vocabulary_size:
            raise DataError(
                f"{self._arguments[0]!r} has ids {least} to {largest}, but the vocabulary_size in "
                f"its {DESCRIPTION_FILE} is {self.description.vocabulary_size}; correct the ids or "
                "vocabulary_size"
            )
        return ids

    def find_sentence(self, position: int) -> int:
        """Return the index of the sentence that contains the token id at a position of `ids`."""
        return int(self.sentence_starts.searchsorted(position, side="right")) - 1

    def find_sentence_start(self, sentence: int) -> int:
        """Return where a sentence starts in `ids`; the text's end for the one after the last."""
        is_end = sentence == len(self.sentence_starts)
        return len(self.ids) if is_end else int(self.sentence_starts[sentence])

    def find_document(self, sentence: int) -> Tuple[int, int]:
        """Return the document of a sentence, as indices: first sentence, and one after the last."""
        number = int(self.document_starts.searchsorted(sentence, side="right"))
        is_last = number == len(self.document_starts)
        end = len(self.sentence_starts) if is_last else int(self.document_starts[number])
        return int(self.document_starts[number - 1]), end

    def choose_other_sentence(self, sentence: int, random: RandomState) -> int:
        """Draw the index of a sentence uniformly from all documents but that of `sentence`."""
        first, end = self.find_document(sentence)
        other = int(random.randint(len(self.sentence_starts) - (end - first)))
        return other if other < first else other + end - first


def _map_array(path: Path) -> Array:
    import numpy

    try:
        array: Array = numpy.load(str(path), mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{str(path)!r} cannot be read: {error}; to generate such files: `dlperf-slurm "
            "data make text`"
        ) from error
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"{str(path)!r} is an array of {array.dtype} with shape {list(array.shape)}; allowed: "
            "a one-dimensional array of integers"
        )
    return array
