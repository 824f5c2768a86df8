"""A folder of tokenized text -> full sequences for a decoder: all tokens, one after the other.

The folder is that of `tokens`. Documents follow each other without a separator or padding: a sample
is the next `sequence_length` tokens, and its labels are the tokens one further.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict

from dlperf_slurm.worker.datasets.description import (
    DESCRIPTION_FILE,
    DataError,
    TextDescription,
)
from dlperf_slurm.worker.datasets.text import open_text
from dlperf_slurm.worker.datasets.tokens import check_vocabulary, read_text_description

if TYPE_CHECKING:
    from typing import Protocol

    from numpy.typing import NDArray

    class DecoderModel(Protocol):
        """What a decoder model must define."""

        @property
        def sequence_length(self) -> int: ...

        @property
        def vocabulary_size(self) -> int: ...


def open_folder(data_dir: str, split: str, definition: "DecoderModel", seed: int) -> "PackedTokens":
    """Open one split of a tokenized text; samples have nothing random, so `seed` is not used.

    Raises DataError, with a remedy, if the folder is not such a text or does not fit the model.
    """
    return PackedTokens(data_dir, split, definition)


class PackedTokens:
    """One split of a text, memory-mapped; its samples cover the whole text in order."""

    def __init__(self, data_dir: str, split: str, definition: "DecoderModel") -> None:
        self._arguments = (data_dir, split, definition)
        self._length = definition.sequence_length
        self._description: TextDescription = read_text_description(data_dir)
        check_vocabulary(self._description, data_dir, definition.vocabulary_size)
        folder = Path(data_dir) / split
        self._text = open_text(folder)
        if len(self) == 0:
            raise DataError(
                f"{str(folder)!r} has {len(self._text.ids)} token ids; one sequence of the model "
                f"needs {self._length + 1}; use a larger data set"
            )

    def __reduce__(self) -> Any:
        # a copy opens the files again: pickling a memory map would read and send the whole array
        return type(self), self._arguments

    def __len__(self) -> int:
        return (len(self._text.ids) - 1) // self._length

    def read_sample(self, index: int, epoch: int) -> "Dict[str, NDArray[Any]]":
        """Return input_ids and labels, int64 [sequence_length]; labels are one token further."""
        ids = self._text.read_ids(index * self._length, self._length + 1)
        least, largest = int(ids.min()), int(ids.max())
        if least < 0 or largest >= self._description.vocabulary_size:
            raise DataError(
                f"{self._arguments[0]!r} has ids {least} to {largest}, but the vocabulary_size in "
                f"its {DESCRIPTION_FILE} is {self._description.vocabulary_size}; correct one of "
                "them"
            )
        return {"input_ids": ids[:-1], "labels": ids[1:]}
