"""Text packed for a decoder: all words in their order, each but the first predicted once."""

import pickle

import pytest
from test_datasets_text import COUNT, VOCABULARY, write_text

from dlperf_slurm.worker.datasets.description import DataError
from dlperf_slurm.worker.datasets.packed_tokens import open_folder
from dlperf_slurm.worker.models.llama import Definition
from dlperf_slurm.worker.synthetic_batch import make_batch

numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")

LENGTH = 32
SMALL = Definition(sequence_length=LENGTH, vocabulary_size=VOCABULARY)


@pytest.fixture
def folder(tmp_path):
    """No id comes twice: it tells its place. Sentences of 7, documents of 10 sentences."""
    ids = numpy.arange(1000, 1000 + COUNT, dtype=numpy.uint16)
    sentences = list(range(0, COUNT, 7))
    return write_text(tmp_path, ids, sentences, list(range(0, len(sentences), 10)))


def open_text(path, definition=SMALL, split="train"):
    return open_folder(str(path), split, definition, 5)


@pytest.mark.parametrize("split", ["train", "val"])
def test_samples_have_keys_shapes_and_types_of_synthetic_ones(folder, split):
    sample = open_text(folder, split=split).read_sample(0, 0)
    expected = {name: values[0] for name, values in make_batch(SMALL, 1, 0, 0).items()}
    assert {name: (v.shape, v.dtype) for name, v in sample.items()} == {
        name: (v.shape, v.dtype) for name, v in expected.items()
    }


def test_samples_are_the_text_and_labels_one_word_further(folder):
    dataset = open_text(folder)
    # the last word that is predicted has one before it
    assert len(dataset) == (COUNT - 1) // LENGTH
    samples = [dataset.read_sample(index, 0) for index in range(len(dataset))]
    seen = numpy.concatenate([sample["input_ids"] for sample in samples])
    predicted = numpy.concatenate([sample["labels"] for sample in samples])
    # `folder` has each word once, from 1000
    assert (seen == 1000 + numpy.arange(len(seen))).all()
    assert (predicted == seen + 1).all()


def test_copy_in_another_process_reads_the_same(folder):
    dataset = open_text(folder)
    copy = pickle.loads(pickle.dumps(dataset))
    assert (copy.read_sample(3, 0)["labels"] == dataset.read_sample(3, 0)["labels"]).all()


def test_text_with_more_words_than_the_model_is_refused(folder):
    with pytest.raises(DataError, match=rf"vocabulary_size is {VOCABULARY}, the model's is 100"):
        open_text(folder, Definition(sequence_length=LENGTH, vocabulary_size=100))


def test_text_that_is_shorter_than_a_sequence_is_refused(folder):
    definition = Definition(sequence_length=COUNT, vocabulary_size=VOCABULARY)
    with pytest.raises(DataError, match=rf"{COUNT} ids; .* {COUNT + 1}"):
        open_text(folder, definition)


def test_id_beyond_the_vocabulary_is_named(folder):
    ids = numpy.full(COUNT, VOCABULARY, numpy.uint16)
    numpy.save(str(folder / "train" / "ids.npy"), ids)
    with pytest.raises(DataError, match=f"has ids {VOCABULARY} to {VOCABULARY}"):
        open_text(folder).read_sample(0, 0)


def test_folder_without_a_text_is_refused_with_what_makes_one(tmp_path):
    with pytest.raises(DataError, match="dlperf-slurm data make text"):
        open_text(tmp_path)
