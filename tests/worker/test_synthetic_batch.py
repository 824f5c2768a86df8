"""Synthetic batches: reproducible, different per rank, in the ranges that the models take."""

import hashlib

import pytest

from dlperf_slurm.worker.models import bert, resnet50
from dlperf_slurm.worker.synthetic_batch import make_batch

numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")

SMALL_RESNET50 = resnet50.Definition(image_size=32, classes=10)
SMALL_BERT = bert.Definition(sequence_length=16, vocabulary_size=200, predictions_per_sequence=5)
OF_EITHER_MODEL = pytest.mark.parametrize("definition", [SMALL_RESNET50, SMALL_BERT])


@OF_EITHER_MODEL
@pytest.mark.parametrize(("seed", "rank", "is_same"), [(7, 1, True), (7, 0, False), (8, 1, False)])
def test_batch_is_that_of_seed_and_rank(definition, seed, rank, is_same):
    one, other = make_batch(definition, 4, 7, 1), make_batch(definition, 4, seed, rank)
    assert all(numpy.array_equal(one[name], other[name]) for name in one) == is_same


@pytest.mark.parametrize(
    ("definition", "digest"),
    [(SMALL_RESNET50, "156f0e5168eb8433"), (SMALL_BERT, "19ce63a0309c1a80")],
)
def test_batch_has_the_same_bits_under_every_numpy(definition, digest):
    batch = make_batch(definition, 3, 7, 1)
    content = b"".join(batch[name].tobytes() for name in sorted(batch))
    assert hashlib.sha256(content).hexdigest()[:16] == digest


@OF_EITHER_MODEL
def test_joined_batch_of_three_ranks_is_one_ranks_batch_three_times_as_large(definition):
    joined = make_batch(definition, 6, 7, 0)
    parts = [make_batch(definition, 2, 7, rank) for rank in range(3)]
    for name, values in joined.items():
        assert numpy.array_equal(values, numpy.concatenate([part[name] for part in parts]))


def test_exactly_the_masked_positions_read_as_the_mask():
    definition = bert.Definition(vocabulary_size=10**6)
    batch = make_batch(definition, 2, 0, 0)
    is_mask = batch["input_ids"] == definition.MASK_ID
    expected = numpy.zeros((2, 128), bool)
    numpy.put_along_axis(expected, batch["masked_positions"], True, axis=1)
    assert numpy.array_equal(is_mask, expected)
    assert (batch["masked_ids"] != definition.MASK_ID).all()
    # every position can be predicted but the first
    batch = make_batch(bert.Definition(sequence_length=21, type_vocabulary_size=1), 2, 0, 0)
    assert batch["masked_positions"].tolist() == [list(range(1, 21))] * 2
    assert not batch["token_type_ids"].any()
