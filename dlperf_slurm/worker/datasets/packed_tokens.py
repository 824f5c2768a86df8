"""A folder of tokenised text -> full sequences for a decoder: all words, one after the other.

The folder is that of `tokens`. Documents follow each other without a mark or padding: a sample is
the next `sequence_length` words, and what it predicts are the words one further.
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

    class Definition(Protocol):
        """What a model of following words says of them."""

        @property
        def sequence_length(self) -> int: ...

        @property
        def vocabulary_size(self) -> int: ...


def open_folder(data_dir: str, split: str, definition: "Definition", seed: int) -> "PackedTokens":
    """One split of a tokenised text; its samples have nothing random.

    Raises DataError, with what to do, for a folder that is none, or a text not for the model.
    """
    return PackedTokens(data_dir, split, definition)


class PackedTokens:
    """One split of a text, mapped into memory; its samples follow each other through all of it."""

    def __init__(self, data_dir: str, split: str, definition: "Definition") -> None:
        self._arguments = (data_dir, split, definition)
        self._length = definition.sequence_length
        self._description: TextDescription = read_text_description(data_dir)
        check_vocabulary(self._description, data_dir, definition.vocabulary_size)
        folder = Path(data_dir) / split
        self._text = open_text(folder)
        if len(self) == 0:
            raise DataError(
                f"{str(folder)!r} has {len(self._text.ids)} ids; a sequence of the model takes "
                f"{self._length + 1}"
            )

    def __reduce__(self) -> Any:
        # A copy opens the files again: pickled, a mapped array would be read and sent as a whole.
        return type(self), self._arguments

    def __len__(self) -> int:
        return (len(self._text.ids) - 1) // self._length

    def read_sample(self, index: int, epoch: int) -> "Dict[str, NDArray[Any]]":
        """input_ids and labels: int64 [sequence_length], the latter one word further."""
        ids = self._text.read_ids(index * self._length, self._length + 1)
        least, largest = int(ids.min()), int(ids.max())
        if least < 0 or largest >= self._description.vocabulary_size:
            raise DataError(
                f"{self._arguments[0]!r} has ids {least} to {largest}, the vocabulary_size in its "
                f"{DESCRIPTION_FILE} is {self._description.vocabulary_size}; correct one of them"
            )
        return {"input_ids": ids[:-1], "labels": ids[1:]}
