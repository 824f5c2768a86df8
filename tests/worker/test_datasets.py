"""The order of an epoch over ranks, batches of samples, and the pool of synthetic ones."""

import pickle

import pytest

from dlperf_slurm.worker.datasets.batches import (
    KeyedSamples,
    collate,
    list_indices,
    narrow_integers,
    pad_batch,
    split_for_training,
    split_for_validation,
    spread_labels,
)
from dlperf_slurm.worker.datasets.description import DataError
from dlperf_slurm.worker.models import bert, resnet50
from dlperf_slurm.worker.synthetic_batch import SyntheticSamples, make_batch

numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")

SMALL_RESNET50 = resnet50.Definition(image_size=32, classes=10)
SMALL_BERT = bert.Definition(sequence_length=16, vocabulary_size=200, predictions_per_sequence=5)


def is_equal(one, other):
    return sorted(one) == sorted(other) and all(
        one[name].dtype == other[name].dtype and numpy.array_equal(one[name], other[name])
        for name in one
    )


def split_over_ranks(split, indices, world_size, batch_size):
    return [split(indices, rank, world_size, batch_size) for rank in range(world_size)]


def test_unshuffled_epoch_is_in_the_order_of_the_files():
    assert list_indices(5, seed=3, epoch=2, is_shuffled=False).tolist() == [0, 1, 2, 3, 4]


def test_shuffled_epoch_has_each_sample_once():
    order = list_indices(1000, seed=3, epoch=2, is_shuffled=True)
    assert order.tolist() != list(range(1000))
    assert sorted(order) == list(range(1000))


def test_order_is_the_same_under_every_numpy():
    order = list_indices(8, seed=3, epoch=2, is_shuffled=True)
    assert order.tolist() == [3, 7, 4, 0, 1, 6, 2, 5]


@pytest.mark.parametrize(("seed", "epoch"), [(4, 2), (3, 3)])
def test_another_seed_or_epoch_has_another_order(seed, epoch):
    one = list_indices(100, 3, 2, is_shuffled=True)
    assert one.tolist() != list_indices(100, seed, epoch, is_shuffled=True).tolist()


def test_training_drops_what_is_no_whole_global_batch():
    ranks = split_over_ranks(split_for_training, numpy.arange(29), 3, 4)
    assert [batches.shape for batches in ranks] == [(2, 4)] * 3
    seen = numpy.concatenate([batches.ravel() for batches in ranks])
    assert sorted(seen) == list(range(24))


def test_global_batches_follow_each_other_and_the_ranks_in_them():
    ranks = split_over_ranks(split_for_training, numpy.arange(8), 2, 2)
    assert [batches.tolist() for batches in ranks] == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]


def test_samples_for_less_than_one_global_batch_are_an_error():
    with pytest.raises(DataError, match=r"11 training samples .* 12"):
        split_for_training(numpy.arange(11), 0, 3, 4)


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [1, 7, 24, 25, 29])
def test_validation_sees_each_sample_exactly_once(count, world_size):
    ranks = split_over_ranks(split_for_validation, numpy.arange(count), world_size, 4)
    seen = [index for batches in ranks for batch in batches for index in batch]
    assert sorted(seen) == list(range(count))


@pytest.mark.parametrize("count", [1, 7, 24, 25, 29])
def test_validation_gives_ranks_the_same_number_of_batches_or_one_less(count):
    ranks = split_over_ranks(split_for_validation, numpy.arange(count), 3, 4)
    numbers = [len(batches) for batches in ranks]
    assert max(numbers) - min(numbers) <= 1


def test_only_the_last_validation_batch_is_smaller():
    ranks = split_over_ranks(split_for_validation, numpy.arange(22), 2, 4)
    assert [[len(batch) for batch in batches] for batches in ranks] == [[4, 4, 4], [4, 4, 2]]


@pytest.mark.parametrize(("size", "expected"), [(2, [7, 8]), (3, [7, 8, 7]), (5, [7, 8, 7, 8, 7])])
def test_padded_batch_repeats_its_samples_and_tells_their_number(size, expected):
    padded, count = pad_batch(numpy.array([7, 8]), size)
    assert (padded.tolist(), count) == (expected, 2)


@pytest.mark.parametrize("definition", [SMALL_RESNET50, SMALL_BERT])
def test_collated_samples_are_the_batch_they_were_made_from(definition):
    dataset = SyntheticSamples(definition, 5, seed=7)
    batch = collate([dataset.read_sample(index, 0) for index in range(5)])
    assert is_equal(batch, make_batch(definition, 5, 7, 0))


def test_synthetic_samples_are_copies():
    dataset = SyntheticSamples(SMALL_RESNET50, 2, seed=7)
    dataset.read_sample(1, 0)["images"][:] = 0
    assert dataset.read_sample(1, 0)["images"].any()


def test_pickled_synthetic_samples_are_the_same():
    dataset = SyntheticSamples(SMALL_BERT, 3, seed=7)
    copy = pickle.loads(pickle.dumps(dataset))
    assert len(copy) == 3
    assert is_equal(copy.read_sample(2, 0), dataset.read_sample(2, 0))


def test_keyed_samples_are_those_of_their_epoch_and_index():
    class Dataset:
        def read_sample(self, index, epoch):
            return index, epoch

        def __len__(self):
            return 7

    samples = KeyedSamples(Dataset())
    assert samples[3, 5] == (5, 3)
    assert len(samples) == 7


def test_labels_that_are_numbers_become_probabilities_where_there_are_classes():
    labels = numpy.array([2, 0])
    spread = spread_labels({"labels": labels}, 3)["labels"]
    assert spread.tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    assert spread.dtype == "float32"
    assert spread_labels({"labels": spread}, 3)["labels"] is spread
    assert spread_labels({"labels": labels}, 0)["labels"] is labels


def test_integers_are_narrowed_and_nothing_else():
    batch = {"labels": numpy.array([2]), "images": numpy.array([0.5], "float32")}
    narrowed = narrow_integers(batch)
    assert narrowed["labels"].dtype == "int32"
    assert narrowed["labels"].tolist() == [2]
    assert narrowed["images"] is batch["images"]
