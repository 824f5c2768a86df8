"""Tokenised text: segments that are the text's own, masks as BERT's, errors that name the file."""

import json
import pickle

import pytest

from dlperf_slurm.worker.datasets import packed_tokens, tokens
from dlperf_slurm.worker.datasets.description import DataError
from dlperf_slurm.worker.models import bert, llama
from dlperf_slurm.worker.synthetic_batch import make_batch

numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")

VOCABULARY = 20000
SMALL = bert.Definition(sequence_length=32, vocabulary_size=VOCABULARY, predictions_per_sequence=5)
SMALL_LLAMA = llama.Definition(sequence_length=32, vocabulary_size=VOCABULARY)
TEXT_TOKENS = 29
COUNT = 10000
IDS = {"first_word_id": 104, "classification_id": 101, "separator_id": 102, "mask_id": 103}
DESCRIPTION = {"vocabulary_size": VOCABULARY, **IDS}


def write_text(folder, ids, sentences, documents):
    for split in ("train", "val"):
        (folder / split).mkdir()
        numpy.save(str(folder / split / "ids.npy"), ids)
        numpy.save(str(folder / split / "sentence_starts.npy"), numpy.array(sentences))
        numpy.save(str(folder / split / "document_starts.npy"), numpy.array(documents))
    (folder / "dataset.json").write_text(json.dumps(DESCRIPTION), encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path):
    """No id comes twice: it tells its place. Sentences of 7, documents of 10 sentences."""
    ids = numpy.arange(1000, 1000 + COUNT, dtype=numpy.uint16)
    sentences = list(range(0, COUNT, 7))
    return write_text(tmp_path, ids, sentences, list(range(0, len(sentences), 10)))


def open_text(folder, split="train", definition=SMALL, seed=5):
    module = packed_tokens if isinstance(definition, llama.Definition) else tokens
    return module.Folder(str(folder), split, definition, seed)


def read_all(dataset, epoch=0):
    return [dataset.read_sample(index, epoch) for index in range(len(dataset))]


@pytest.mark.parametrize("definition", [SMALL, SMALL_LLAMA])
@pytest.mark.parametrize("split", ["train", "val"])
def test_samples_have_keys_shapes_and_types_of_synthetic_ones(folder, split, definition):
    sample = open_text(folder, split, definition).read_sample(0, 0)
    expected = {name: values[0] for name, values in make_batch(definition, 1, 0, 0).items()}
    assert {name: (v.shape, v.dtype) for name, v in sample.items()} == {
        name: (v.shape, v.dtype) for name, v in expected.items()
    }


def test_packed_samples_are_the_text_and_labels_one_word_further(folder):
    samples = read_all(open_text(folder, definition=SMALL_LLAMA))
    # the last word that is predicted has one before it
    assert len(samples) == (COUNT - 1) // 32
    seen = numpy.concatenate([sample["input_ids"] for sample in samples])
    predicted = numpy.concatenate([sample["labels"] for sample in samples])
    assert (seen == 1000 + numpy.arange(len(seen))).all()
    assert (predicted == seen + 1).all()


def split_sample(sample):
    """Both segments of a sample without its masks, as places in the text of `folder`."""
    ids = sample["input_ids"].copy()
    ids[sample["masked_positions"]] = sample["masked_ids"]
    assert ids[0] == 101
    first_end, end = numpy.flatnonzero(ids == 102)
    assert end == len(ids) - 1
    return ids[1:first_end] - 1000, ids[first_end + 1 : end] - 1000


def test_segments_are_the_texts_own(folder):
    samples = read_all(open_text(folder))
    assert len(samples) == COUNT // TEXT_TOKENS
    for index, sample in enumerate(samples):
        first, second = split_sample(sample)
        assert len(first) + len(second) == TEXT_TOKENS
        assert (numpy.diff(first) == 1).all()
        assert (numpy.diff(second) % COUNT == 1).all()
        # the first is of whole sentences in one document, but the text's last, which is cut
        assert first[0] == index * TEXT_TOKENS // 7 * 7
        assert len(first) % 7 == 0 or first[-1] == COUNT - 1
        assert first[0] // 70 == first[-1] // 70
        # the second follows it, or begins a sentence of another document
        is_next = sample["next_sentence_labels"] == 0
        assert (second[0] == first[-1] + 1) if is_next else (second[0] % 7 == 0)
        assert (second[0] // 70 == first[0] // 70) == is_next
        types = [0] * (len(first) + 2) + [1] * (len(second) + 1)
        assert sample["token_type_ids"].tolist() == types


def test_labels_of_the_next_sentence_are_balanced(folder):
    labels = [
        s["next_sentence_labels"] for epoch in range(3) for s in read_all(open_text(folder), epoch)
    ]
    # a first segment that ends its document has no neighbour: one in five here
    assert 0.35 < 1 - numpy.mean(labels) < 0.5


def test_masks_are_as_berts(folder):
    samples = [s for epoch in range(10) for s in read_all(open_text(folder), epoch)]
    positions = numpy.array([s["masked_positions"] for s in samples])
    assert (numpy.diff(positions, axis=1) > 0).all()
    assert set(positions.ravel()) == set(range(1, 31))
    read = numpy.array([s["input_ids"][s["masked_positions"]] for s in samples])
    true = numpy.array([s["masked_ids"] for s in samples])
    # words, and neither the first nor the separators
    assert true.min() >= 1000
    is_mask, is_kept = read == 103, read == true
    assert is_mask.mean() == pytest.approx(0.8, abs=0.015)
    assert is_kept.mean() == pytest.approx(0.1, abs=0.015)
    others = read[~is_mask & ~is_kept]
    assert 104 <= others.min() < 400
    assert VOCABULARY - 300 < others.max() < VOCABULARY


def test_sample_depends_on_seed_epoch_and_index_alone(folder):
    def read(epoch, seed=5, split="train"):
        return open_text(folder, split, seed=seed).read_sample(3, epoch)["input_ids"].tolist()

    assert read(1) == read(1)
    assert read(1) != read(2)
    assert read(1) != read(1, seed=6)
    assert read(1, split="val") == read(2, split="val")


def test_pickled_copy_opens_the_files_again(folder):
    dataset = open_text(folder)
    content = pickle.dumps(dataset)
    assert len(content) < 1000
    copy, sample = pickle.loads(content).read_sample(9, 1), dataset.read_sample(9, 1)
    assert all((copy[name] == sample[name]).all() for name in sample)


def test_sentence_longer_than_half_the_sequence_is_cut_into_pieces(tmp_path):
    ids = numpy.arange(1000, 1200, dtype=numpy.int32)
    dataset = open_text(write_text(tmp_path, ids, [0, 100], [0, 1]))
    firsts = [split_sample(sample)[0] for sample in read_all(dataset)]
    # the fourth up to the next sentence, which is another document
    expected = [(0, 14), (29, 14), (58, 14), (87, 13), (116, 14), (145, 14)]
    assert [(first[0], len(first)) for first in firsts] == expected


@pytest.mark.parametrize("name", ["ids", "sentence_starts", "document_starts"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "cannot be read: .*No such file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-8]), "cannot be read: "),
        (lambda path: numpy.save(str(path), numpy.ones(9)), r"float64 with shape \[9\]"),
        (lambda path: numpy.save(str(path), numpy.ones((3, 3), int)), r"int64 with shape \[3, 3\]"),
    ],
)
def test_damaged_file_is_named(folder, name, damage, message):
    damage(folder / "train" / f"{name}.npy")
    with pytest.raises(DataError, match=rf"train/{name}\.npy' .*{message}"):
        open_text(folder)


@pytest.mark.parametrize("name", ["sentence_starts", "document_starts"])
@pytest.mark.parametrize("starts", [[], [1, 2], [0, COUNT]])
def test_borders_outside_of_the_text_are_named(folder, name, starts):
    numpy.save(str(folder / "train" / f"{name}.npy"), numpy.array(starts, numpy.int64))
    with pytest.raises(DataError, match=rf"{name}\.npy' .* 0 .* below \d+"):
        open_text(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary_size": 30000}, "vocabulary_size is 30000, .*20000"),
        ({"mask_id": 4}, "mask_id is 4, .*103"),
        ({"separator_id": -1}, "separator_id is -1; allowed: 0 <= value < vocabulary_size"),
        ({"lower_case": True}, "lower_case .*: vocabulary_size"),
    ],
)
def test_text_that_does_not_fit_the_model_is_an_error(folder, changes, message):
    (folder / "dataset.json").write_text(json.dumps({**DESCRIPTION, **changes}), encoding="utf-8")
    with pytest.raises(DataError, match=rf"dataset\.json'.*{message}"):
        open_text(folder)


def test_text_without_description_is_an_error_with_what_makes_one(folder):
    (folder / "dataset.json").unlink()
    with pytest.raises(DataError, match=r"dataset\.json' .*data make text"):
        open_text(folder)


@pytest.mark.parametrize("other", [VOCABULARY, -1])
def test_id_outside_of_the_vocabulary_is_an_error_not_a_crash_of_the_device(tmp_path, other):
    ids = numpy.full(400, 500, numpy.int32)
    ids[20:] = other
    dataset = open_text(write_text(tmp_path, ids, [0, 200], [0, 1]))
    with pytest.raises(DataError, match=rf"ids -?\d+ to -?\d+, .* is {VOCABULARY}"):
        dataset.read_sample(0, 0)


@pytest.mark.parametrize(
    ("definition", "ids", "documents", "message"),
    [
        (SMALL, 28, [0, 1], "28 token ids in 2 documents"),
        (SMALL, 100, [0], "100 token ids in 1 documents"),
        (SMALL_LLAMA, 32, [0, 1], "32 token ids; .* 33"),
        (
            bert.Definition(sequence_length=10, predictions_per_sequence=8),
            100,
            [0, 1],
            "sequence_length of 10 .* 7 tokens",
        ),
    ],
)
def test_text_for_less_than_one_sample_is_an_error(tmp_path, definition, ids, documents, message):
    write_text(tmp_path, numpy.full(ids, 200, numpy.int32), [0, 10], documents)
    with pytest.raises(DataError, match=message):
        open_text(tmp_path, definition=definition)
