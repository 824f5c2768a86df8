"""The files of a tokenized text -> its ids, sentences and documents, memory-mapped.

ids.npy               uint16 or int32 [ids]: all token ids of the text, one after the other
sentence_starts.npy   int64 [sentences]: index into `ids` of each start, ascending from 0
document_starts.npy   int64 [documents]: index of its first sentence, ascending from 0
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Tuple

from dlperf_slurm.worker.datasets.description import DataError

if TYPE_CHECKING:
    from numpy.random import RandomState
    from numpy.typing import NDArray


IDS_FILE = "ids.npy"
SENTENCES_FILE = "sentence_starts.npy"
DOCUMENTS_FILE = "document_starts.npy"


class Text(NamedTuple):
    """A text's ids, sentences and documents.

    A position is an index into `ids`; positions past the end wrap around to 0.
    """

    ids: "NDArray[Any]"
    sentence_starts: "NDArray[Any]"
    document_starts: "NDArray[Any]"

    def read_ids(self, position: int, count: int) -> "NDArray[Any]":
        """Return `count` ids from `position` on, int64 [count]."""
        import numpy

        positions = numpy.arange(position, position + count)
        return numpy.asarray(self.ids.take(positions, mode="wrap"), numpy.int64)

    def find_sentence(self, position: int) -> int:
        """Return the index of the sentence that contains a position."""
        return int(self.sentence_starts.searchsorted(position, side="right")) - 1

    def find_sentence_start(self, sentence: int) -> int:
        """Return where a sentence starts in `ids`; the text's end for the one after the last."""
        is_end = sentence == len(self.sentence_starts)
        return len(self.ids) if is_end else int(self.sentence_starts[sentence])

    def find_document(self, sentence: int) -> Tuple[int, int]:
        """Return the document of a sentence, as its first sentence and the one after its last."""
        number = int(self.document_starts.searchsorted(sentence, side="right"))
        is_last = number == len(self.document_starts)
        end = len(self.sentence_starts) if is_last else int(self.document_starts[number])
        return int(self.document_starts[number - 1]), end

    def choose_other_sentence(self, sentence: int, random: "RandomState") -> int:
        """Draw a sentence of another document uniformly."""
        first, end = self.find_document(sentence)
        other = int(random.randint(len(self.sentence_starts) - (end - first)))
        return other if other < first else other + end - first


def open_text(folder: Path) -> Text:
    """Open the text of a split.

    Raises DataError, naming the file, if the files cannot be used.
    """
    text = Text(*(_map_array(folder / n) for n in (IDS_FILE, SENTENCES_FILE, DOCUMENTS_FILE)))
    for name, starts, end in (
        (SENTENCES_FILE, text.sentence_starts, len(text.ids)),
        (DOCUMENTS_FILE, text.document_starts, len(text.sentence_starts)),
    ):
        if not len(starts) or starts[0] != 0 or starts[-1] >= end:
            raise DataError(
                f"{str(folder / name)!r} must begin with 0 and end below {end}; generate the data "
                "set again"
            )
    return text


def _map_array(path: Path) -> "NDArray[Any]":
    import numpy

    try:
        array: "NDArray[Any]" = numpy.load(str(path), mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{str(path)!r} cannot be read: {error}; to generate such files: `dlperf-slurm "
            "data make text`"
        ) from error
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"{str(path)!r} is {array.dtype} of shape {list(array.shape)}; allowed: "
            "one-dimensional integers"
        )
    return array
