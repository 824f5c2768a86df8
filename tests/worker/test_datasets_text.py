"""Tokenised text: segments that are the text's own, masks as BERT's, errors that name the file."""

import json
import pickle

import pytest

from dlperf_slurm.worker.datasets.description import DataError
from dlperf_slurm.worker.datasets.tokens import TokenFolder
from dlperf_slurm.worker.models.bert import Definition
from dlperf_slurm.worker.synthetic_batch import make_batch

numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")

VOCABULARY = 20000
SMALL = Definition(sequence_length=32, vocabulary_size=VOCABULARY, predictions_per_sequence=5)
WORDS = 29
COUNT = 10000
DESCRIPTION = {
    "vocabulary_size": VOCABULARY,
    "first_word_id": 104,
    "classification_id": 101,
    "separator_id": 102,
    "mask_id": 103,
}


def write_text(folder, ids, sentences, documents, **changes):
    for split in ("train", "val"):
        (folder / split).mkdir()
        numpy.save(str(folder / split / "ids.npy"), ids)
        numpy.save(str(folder / split / "sentence_starts.npy"), numpy.array(sentences))
        numpy.save(str(folder / split / "document_starts.npy"), numpy.array(documents))
    text = json.dumps({**DESCRIPTION, **changes})
    (folder / "dataset.json").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path):
    """No id comes twice: it tells its place. Sentences of 7, documents of 10 sentences."""
    ids = numpy.arange(1000, 1000 + COUNT, dtype=numpy.uint16)
    sentences = list(range(0, COUNT, 7))
    return write_text(tmp_path, ids, sentences, list(range(0, len(sentences), 10)))


def open_text(folder, split="train", definition=SMALL, seed=5):
    return TokenFolder(str(folder), split, definition, seed)


def split_sample(sample):
    """Both segments of a sample without its masks, as places in the text of `folder`."""
    ids = sample["input_ids"].copy()
    ids[sample["masked_positions"]] = sample["masked_ids"]
    assert ids[0] == 101
    first_end, end = numpy.flatnonzero(ids == 102)
    assert end == len(ids) - 1
    return ids[1:first_end] - 1000, ids[first_end + 1 : end] - 1000


def read_all(dataset, epoch=0):
    return [dataset.read_sample(index, epoch) for index in range(len(dataset))]


@pytest.mark.parametrize("split", ["train", "val"])
def test_samples_have_keys_shapes_and_types_of_synthetic_ones(folder, split):
    sample = open_text(folder, split).read_sample(0, 0)
    expected = {name: values[0] for name, values in make_batch(SMALL, 1, 0, 0).items()}
    assert {name: (v.shape, v.dtype) for name, v in sample.items()} == {
        name: (v.shape, v.dtype) for name, v in expected.items()
    }


def test_samples_together_are_as_long_as_the_text(folder):
    assert len(open_text(folder)) == COUNT // WORDS


def test_segments_are_the_texts_own(folder):
    for sample in read_all(open_text(folder)):
        first, second = split_sample(sample)
        assert len(first) + len(second) == WORDS
        assert (numpy.diff(first) == 1).all()
        assert (numpy.diff(second) % COUNT == 1).all()


def test_first_segment_is_of_whole_sentences_in_one_document(folder):
    for index, sample in enumerate(read_all(open_text(folder))):
        first, _ = split_sample(sample)
        assert first[0] == index * WORDS // 7 * 7
        # but the last sentence of the text, which is cut
        assert len(first) % 7 == 0 or first[-1] == COUNT - 1
        assert first[0] // 70 == first[-1] // 70


def test_second_segment_follows_or_is_of_another_document(folder):
    for sample in read_all(open_text(folder)):
        first, second = split_sample(sample)
        if sample["next_sentence_labels"] == 0:
            assert second[0] == first[-1] + 1
            assert second[0] // 70 == first[0] // 70
        else:
            assert second[0] % 7 == 0
            assert second[0] // 70 != first[0] // 70


def test_labels_of_the_next_sentence_are_balanced(folder):
    labels = [
        s["next_sentence_labels"] for epoch in range(3) for s in read_all(open_text(folder), epoch)
    ]
    # a first segment that ends its document has no neighbour: one in five here
    assert 0.35 < 1 - numpy.mean(labels) < 0.5


def test_token_types_tell_the_segments_apart(folder):
    for sample in read_all(open_text(folder))[:20]:
        first, second = split_sample(sample)
        expected = [0] * (len(first) + 2) + [1] * (len(second) + 1)
        assert sample["token_type_ids"].tolist() == expected


def test_masked_positions_ascend_and_are_words(folder):
    seen = set()
    for sample in read_all(open_text(folder)):
        positions = sample["masked_positions"]
        assert (numpy.diff(positions) > 0).all()
        assert (sample["masked_ids"] >= 1000).all()
        seen.update(positions.tolist())
    assert seen == set(range(1, 31))


def test_masks_are_as_berts(folder):
    samples = [s for epoch in range(10) for s in read_all(open_text(folder), epoch)]
    read = numpy.array([s["input_ids"][s["masked_positions"]] for s in samples])
    true = numpy.array([s["masked_ids"] for s in samples])
    is_mask, is_kept = read == 103, read == true
    assert is_mask.mean() == pytest.approx(0.8, abs=0.015)
    assert is_kept.mean() == pytest.approx(0.1, abs=0.015)
    others = read[~is_mask & ~is_kept]
    assert others.min() < 400
    assert others.min() >= 104
    assert VOCABULARY - 300 < others.max() < VOCABULARY


def test_sample_depends_on_seed_epoch_and_index_alone(folder):
    def read(epoch, seed):
        return open_text(folder, seed=seed).read_sample(3, epoch)["input_ids"].tolist()

    assert read(1, 5) == read(1, 5)
    assert read(1, 5) != read(2, 5)
    assert read(1, 5) != read(1, 6)


def test_validation_masks_the_same_in_each_epoch(folder):
    dataset = open_text(folder, "val")
    one, other = (dataset.read_sample(3, epoch)["input_ids"] for epoch in (0, 1))
    assert numpy.array_equal(one, other)


def test_pickled_copy_opens_the_files_again(folder):
    dataset = open_text(folder)
    content = pickle.dumps(dataset)
    assert len(content) < 1000
    copy = pickle.loads(content)
    assert numpy.array_equal(
        copy.read_sample(9, 1)["input_ids"], dataset.read_sample(9, 1)["input_ids"]
    )


def test_sentence_longer_than_half_the_sequence_is_cut_into_pieces(tmp_path):
    ids = numpy.arange(1000, 1200, dtype=numpy.int32)
    dataset = open_text(write_text(tmp_path, ids, [0, 100], [0, 1]))
    firsts = [split_sample(sample)[0] for sample in read_all(dataset)]
    assert [(first[0], len(first)) for first in firsts] == [
        (0, 14),
        (29, 14),
        (58, 14),
        # up to the next sentence, which is another document
        (87, 13),
        (116, 14),
        (145, 14),
    ]


def test_full_size_definition_can_be_read(folder):
    sample = open_text(folder, definition=Definition()).read_sample(0, 0)
    assert sample["masked_positions"].shape == (20,)


@pytest.mark.parametrize("name", ["ids", "sentence_starts", "document_starts"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "cannot be read: .*No such file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-8]), "cannot be read: "),
        (lambda path: path.write_bytes(b""), "cannot be read: "),
        (lambda path: path.write_bytes(b"no array"), "cannot be read: "),
        (lambda path: numpy.save(str(path), numpy.ones(9)), r"has float64 \[9\]; integers"),
        (lambda path: numpy.save(str(path), numpy.ones((3, 3), int)), r"has int64 \[3, 3\]"),
    ],
)
def test_damaged_file_is_named(folder, name, damage, message):
    damage(folder / "train" / f"{name}.npy")
    with pytest.raises(DataError, match=rf"train/{name}\.npy' {message}"):
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
    text = json.dumps({**DESCRIPTION, **changes})
    (folder / "dataset.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=f"dataset.json'.*{message}"):
        open_text(folder)


def test_text_without_description_is_an_error(folder):
    (folder / "dataset.json").unlink()
    with pytest.raises(DataError, match=r"dataset\.json' cannot be read .*data make text"):
        open_text(folder)


@pytest.mark.parametrize(("other", "what"), [(VOCABULARY, "500 to 20000"), (-1, "-1 to 500")])
def test_id_outside_of_the_vocabulary_is_an_error_not_a_crash_of_the_device(tmp_path, other, what):
    ids = numpy.full(400, 500, numpy.int32)
    ids[20:] = other
    dataset = open_text(write_text(tmp_path, ids, [0, 200], [0, 1]))
    with pytest.raises(DataError, match=f"has ids {what}, the vocabulary_size in its .* is 20000"):
        dataset.read_sample(0, 0)


@pytest.mark.parametrize(("ids", "documents"), [(28, [0, 1]), (100, [0])])
def test_text_for_less_than_one_sample_is_an_error(tmp_path, ids, documents):
    write_text(tmp_path, numpy.full(ids, 200, numpy.int32), [0, 10], documents)
    with pytest.raises(DataError, match=f"has {ids} ids in {len(documents)} documents"):
        open_text(tmp_path)


def test_sequence_without_room_for_its_predictions_is_an_error(folder):
    definition = Definition(sequence_length=10, predictions_per_sequence=8)
    with pytest.raises(DataError, match="sequence_length of 10 has room for 7 words"):
        open_text(folder, definition=definition)
