"""A recipe -> synthetic tokenized text: token ids by Zipf's law, in sentences and documents."""

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

# token ids of BERT's vocabulary, as is Definition.MASK_ID
CLASSIFICATION_ID = 101
SEPARATOR_ID = 102
FIRST_WORD_ID = 104

WORDS_PER_SENTENCE = 20
SENTENCES_PER_DOCUMENT = 20
# a number of ids that almost surely makes several documents
ENOUGH_IDS = 10 * SENTENCES_PER_DOCUMENT * WORDS_PER_SENTENCE

# ids are drawn in chunks, so that a text of any length fits in memory
PIECE_SIZE = 2**20


@dataclass(frozen=True)
class TextRecipe:
    """Options of a data set of random text: numbers of token ids, vocabulary size, seed."""

    train: int
    val: int
    vocabulary: int
    seed: int

    DATASET: ClassVar[str] = "text"

    @property
    def sizes(self) -> Mapping[str, int]:
        return {"vocabulary_size": self.vocabulary}

    def write_files(self, folder: Path) -> str:
        """Write independent random token ids; return a description.

        Raises InputError if the vocabulary has no ids for words, or the text is a single document.
        """
        if self.vocabulary <= FIRST_WORD_ID:
            raise InputError(
                f"--vocabulary {self.vocabulary}: ids 0 to {FIRST_WORD_ID - 1} are reserved for "
                f"special tokens; use {FIRST_WORD_ID + 1} or more"
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
            origin=f"dlperf_slurm {__version__}: synthetic text, token ids drawn independently by "
            f"Zipf's law, seed {self.seed}",
        )
        write_description(folder, description)
        return (
            f"{self.train} training and {self.val} validation token ids, random, from a vocabulary "
            f"of {self.vocabulary}"
        )

    def _write_split(self, folder: Path, count: int, random: "RandomState") -> None:
        """Write `count` token ids, and the offsets at which sentences and documents start."""
        sentence_starts = draw_starts(count, WORDS_PER_SENTENCE, random)
        document_starts = draw_starts(len(sentence_starts), SENTENCES_PER_DOCUMENT, random)
        if len(document_starts) < 2:
            raise InputError(
                f"{count} token ids make only one document, but training and validation need two "
                f"each; use {ENOUGH_IDS} or more for --train and for --val"
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
    """Compute the cumulative distribution of Zipf's law over `words` words: float64 [words].

    The n-th word is 1/n as frequent as the first (Zipf 1949).
    """
    shares = numpy.cumsum(1 / numpy.arange(1, words + 1))
    return shares / shares[-1]


def draw_starts(count: int, mean_length: int, random: "RandomState") -> "NDArray[Any]":
    """Split `count` items into pieces of random length; return the index at which each begins.

    Lengths are geometric with the mean `mean_length`. Shape: int64 [pieces], ascending from 0.
    """
    # the expected number of pieces plus ten standard deviations
    pieces = count // mean_length + 10 * int(count**0.5) + 10
    ends = numpy.cumsum(random.geometric(1 / mean_length, pieces))
    starts = numpy.concatenate([[0], ends]).astype(numpy.int64)
    return starts[starts < count]
