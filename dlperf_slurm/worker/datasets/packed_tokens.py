"""A folder of tokenized text -> full sequences for a decoder: all tokens, one after the other.

The folder is that of `tokens`. Documents follow each other without a separator or padding: a sample
is the next `sequence_length` tokens, and its labels are the tokens one further.
"""

import os

from dlperf_slurm.worker.annotations import Arrays, Protocol
from dlperf_slurm.worker.datasets.description import DataError
from dlperf_slurm.worker.datasets.text import TextSplit


class DecoderModel(Protocol):
    """What a decoder model must define."""

    @property
    def sequence_length(self) -> int: ...

    @property
    def vocabulary_size(self) -> int: ...


class Folder:
    """One split of a text; its samples cover the whole text in order."""

    def __init__(self, data_dir: str, split: str, definition: DecoderModel, seed: int) -> None:
        """Open the files; `seed` is not used, since samples have nothing random."""
        self._length = definition.sequence_length
        self._text = TextSplit(data_dir, split, definition.vocabulary_size)
        if len(self) == 0:
            raise DataError(
                f"{os.path.join(data_dir, split)!r} has {len(self._text.ids)} token ids; one "
                f"sequence of the model needs {self._length + 1}; use a larger data set"
            )

    def __len__(self) -> int:
        return (len(self._text.ids) - 1) // self._length

    def read_sample(self, index: int, epoch: int) -> Arrays:
        """Return {"input_ids", "labels"}, int64 [sequence_length]; a label is the next token."""
        ids = self._text.read_ids(index * self._length, self._length + 1)
        return {"input_ids": ids[:-1], "labels": ids[1:]}
