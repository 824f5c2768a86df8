"""Made-up text that is tokenised already: ids as frequent as words are, in sentences, documents."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from dlperf_slurm.errors import InputError
from dlperf_slurm.provision.datasets import write_description
from dlperf_slurm.version import __version__
from dlperf_slurm.worker.datasets.description import TRAIN_SPLIT, VAL_SPLIT, TextDescription
from dlperf_slurm.worker.datasets.text import DOCUMENTS_FILE, IDS_FILE, SENTENCES_FILE
from dlperf_slurm.worker.models.bert import Definition

if TYPE_CHECKING:
    from numpy.random import RandomState
    from numpy.typing import NDArray

# ids of BERT's own vocabulary, to which the mask's belongs too
CLASSIFICATION_ID = 101
SEPARATOR_ID = 102
FIRST_WORD_ID = 104

WORDS_PER_SENTENCE = 20
SENTENCES_PER_DOCUMENT = 20
# a number of ids that make several documents, almost surely
ENOUGH_IDS = 10 * SENTENCES_PER_DOCUMENT * WORDS_PER_SENTENCE

# ids are drawn in pieces, so that a text of any length fits into memory
PIECE_SIZE = 2**20


@dataclass(frozen=True)
class TextRecipe:
    """The numbers of ids to train and to validate with, and the size of their vocabulary."""

    train: int
    val: int
    vocabulary: int
    seed: int

    DATASET: ClassVar[str] = "text"

    @property
    def sizes(self) -> Mapping[str, int]:
        return {"vocabulary_size": self.vocabulary}

    def write_files(self, folder: Path) -> str:
        """Write ids that stand for no words, and do not depend on those before.

        Raises InputError for a vocabulary without words, and for a text of one document.
        """
        if self.vocabulary <= FIRST_WORD_ID:
            raise InputError(
                f"--vocabulary {self.vocabulary}: ids up to {FIRST_WORD_ID - 1} are no words; "
                f"take {FIRST_WORD_ID + 1} or more"
            )
        for number, (split, count) in enumerate(((TRAIN_SPLIT, self.train), (VAL_SPLIT, self.val))):
            (folder / split).mkdir()
            random = numpy.random.RandomState([self.seed, number])
            self._write_split(folder / split, count, random)
        description = TextDescription(
            name="text",
            vocabulary_size=self.vocabulary,
            first_word_id=FIRST_WORD_ID,
            classification_id=CLASSIFICATION_ID,
            separator_id=SEPARATOR_ID,
            mask_id=Definition.MASK_ID,
            origin=f"dlperf_slurm {__version__}: independent ids by Zipf's law, seed {self.seed}",
        )
        write_description(folder, description)
        return (
            f"{self.train} training and {self.val} validation ids of a vocabulary of "
            f"{self.vocabulary}, no real words"
        )

    def _write_split(self, folder: Path, count: int, random: "RandomState") -> None:
        sentence_starts = draw_starts(count, WORDS_PER_SENTENCE, random)
        document_starts = draw_starts(len(sentence_starts), SENTENCES_PER_DOCUMENT, random)
        if len(document_starts) < 2:
            raise InputError(
                f"{count} ids are one document, which has no other to be told from; "
                f"take {ENOUGH_IDS} or more for --train and for --val"
            )
        numpy.save(folder / SENTENCES_FILE, sentence_starts)
        numpy.save(folder / DOCUMENTS_FILE, document_starts)
        dtype = numpy.uint16 if self.vocabulary <= 2**16 else numpy.int32
        ids = numpy.lib.format.open_memmap(folder / IDS_FILE, "w+", dtype, (count,))
        shares = make_zipf_shares(self.vocabulary - FIRST_WORD_ID)
        for start in range(0, count, PIECE_SIZE):
            draws = random.random_sample(min(PIECE_SIZE, count - start))
            ids[start : start + len(draws)] = FIRST_WORD_ID + shares.searchsorted(draws)
        ids.flush()


def make_zipf_shares(words: int) -> "NDArray[Any]":
    """The part of a text that its n + 1 most frequent words make: float64 [n], rising to 1.

    The n-th word is 1/n as frequent as the first (Zipf 1949).
    """
    shares = numpy.cumsum(1 / numpy.arange(1, words + 1))
    return shares / shares[-1]


def draw_starts(count: int, mean_length: int, random: "RandomState") -> "NDArray[Any]":
    """The beginnings of pieces that together are `count` long: int64 [piece], ascending from 0."""
    # the number of pieces that `count` takes on average, and ten standard deviations more
    pieces = count // mean_length + 10 * int(count**0.5) + 10
    ends = numpy.cumsum(random.geometric(1 / mean_length, pieces))
    starts = numpy.concatenate([[0], ends]).astype(numpy.int64)
    return starts[starts < count]
