"""The order of an epoch over ranks, batches of samples, and the pool of synthetic ones."""

import pickle
from dataclasses import replace

import pytest
from support import attempts, sessions
from support.cases import vary

from dlperf_slurm.contract.case import Training
from dlperf_slurm.worker.datasets.batches import (
    FileOrder,
    collate,
    list_indices,
    narrow_integers,
    pad_batch,
    split_for_validation,
    spread_labels,
)
from dlperf_slurm.worker.datasets.description import DataError
from dlperf_slurm.worker.models import bert, resnet50
from dlperf_slurm.worker.synthetic_batch import SyntheticSamples, make_batch

numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")

CASE = vary(attempts.CASE, model="resnet50", training=Training(epochs=3))
SMALL_RESNET50 = resnet50.Definition(image_size=32, classes=10)
SMALL_BERT = bert.Definition(sequence_length=16, vocabulary_size=200, predictions_per_sequence=5)


def is_equal(one, other):
    return sorted(one) == sorted(other) and all(
        one[name].dtype == other[name].dtype and numpy.array_equal(one[name], other[name])
        for name in one
    )


def test_epoch_is_in_the_order_of_the_files_or_shuffled_alike_under_every_numpy():
    assert list_indices(5, seed=3, epoch=2, is_shuffled=False).tolist() == [0, 1, 2, 3, 4]
    orders = [list_indices(8, *key, is_shuffled=True).tolist() for key in ((3, 2), (4, 2), (3, 3))]
    assert orders[0] == [3, 7, 4, 0, 1, 6, 2, 5]
    assert orders[0] not in orders[1:]


@pytest.mark.parametrize("world_size", [1, 3, 8])
@pytest.mark.parametrize("count", [1, 7, 24, 25])
def test_validation_sees_each_sample_once_in_as_many_batches_on_each_rank(count, world_size):
    ranks = [
        split_for_validation(numpy.arange(count), rank, world_size, 4) for rank in range(world_size)
    ]
    seen = [index for batches in ranks for batch in batches for index in batch]
    assert sorted(seen) == list(range(count))
    # in turn, so that no rank has two more than another
    dealt = {index: rank for rank, own in enumerate(ranks) for batch in own for index in batch}
    assert [dealt[index] for index in range(count)] == [
        index // 4 % world_size for index in range(count)
    ]
    # only the last one is smaller
    assert set(sorted(len(batch) for batches in ranks for batch in batches)[1:]) <= {4}


@pytest.mark.parametrize(("size", "expected"), [(2, [7, 8]), (5, [7, 8, 7, 8, 7])])
def test_padded_batch_repeats_its_samples_and_tells_their_number(size, expected):
    padded, count = pad_batch(numpy.array([7, 8]), size)
    assert (padded.tolist(), count) == (expected, 2)


@pytest.mark.parametrize("definition", [SMALL_RESNET50, SMALL_BERT])
def test_collated_samples_are_the_batch_they_were_made_from(definition):
    dataset = SyntheticSamples(definition, 5, seed=7)
    copy = pickle.loads(pickle.dumps(dataset))
    assert len(copy) == 5
    for samples in (dataset, copy):
        batch = collate([samples.read_sample(index, 0) for index in range(5)])
        assert is_equal(batch, make_batch(definition, 5, 7, 0))
    dataset.read_sample(1, 0)[sorted(batch)[0]][:1] = 0
    assert is_equal(dataset.read_sample(1, 0), copy.read_sample(1, 0))


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
    assert (narrowed["labels"].dtype, narrowed["labels"].tolist()) == ("int32", [2])
    assert narrowed["images"] is batch["images"]


def order_files(rank=0, batches=None, **changes):
    """27 samples on two ranks in batches of 4: three global batches, and three samples over."""
    place = replace(sessions.ALONE, rank=rank, world_size=2)
    return FileOrder(vary(CASE, **changes), place, 27, batches)


def test_each_sample_is_in_one_batch_of_one_rank_and_epochs_differ():
    orders = [order_files(rank) for rank in (0, 1)]
    assert [len(order) for order in orders] == [9, 9]
    epochs = []
    for epoch in range(3):
        keys = [key for order in orders for n in range(3) for key in order[3 * epoch + n]]
        assert {key[0] for key in keys} == {epoch}
        epochs.append([index for _, index in keys])
        assert len(set(epochs[-1])) == 24
        # global batches follow each other, and the ranks in them
        joined = [index for n in range(3) for order in orders for _, index in order[3 * epoch + n]]
        assert joined == list_indices(27, CASE.seed, epoch, is_shuffled=True).tolist()[:24]
    assert epochs[0] != epochs[1] != epochs[2]


def test_order_is_the_same_in_whatever_sequence_it_is_asked_for_and_ends_where_it_says():
    order = order_files()
    backwards = [order[n] for n in reversed(range(9))]
    assert backwards[::-1] == list(order) == list(pickle.loads(pickle.dumps(order)))
    short = order_files(batches=4)
    assert list(short) == list(order)[:4]
    with pytest.raises(IndexError):
        short[4]


def test_epoch_has_whole_steps_of_accumulated_batches_only():
    assert order_files(gradient_accumulation=2).batches_per_epoch == 2
    with pytest.raises(DataError, match=r"27 training samples .* 32"):
        order_files(gradient_accumulation=4)
