"""Training to accuracy: the learning rate, orders of samples, mixtures, losses of validation."""

import math
import pickle
from dataclasses import replace

import pytest
from support import attempts, sessions
from support.cases import vary

from dlperf_slurm.contract.case import COSINE, Training
from dlperf_slurm.worker.accuracy import Mixtures, find_learning_rate, sum_losses
from dlperf_slurm.worker.datasets.batches import FileOrder
from dlperf_slurm.worker.datasets.description import DataError
from dlperf_slurm.worker.models import resnet50
from dlperf_slurm.worker.synthetic_batch import SyntheticSamples

numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")

CASE = vary(attempts.CASE, model="resnet50", training=Training(epochs=3))
SMALL = resnet50.Definition(image_size=32, stage_blocks=(1, 1, 1, 1), width=8, classes=10)


def place(rank, world_size=2):
    return replace(sessions.ALONE, rank=rank, world_size=world_size)


@pytest.mark.parametrize(
    ("progress", "expected"),
    [(0.0, 0.0), (1.0, 0.25), (2.0, 0.5), (6.0, 0.25), (10.0, 0.0)],
)
def test_rate_rises_over_the_warm_up_and_falls_by_half_a_cosine(progress, expected):
    training = Training(epochs=10, schedule=COSINE, warmup_epochs=2.0)
    assert find_learning_rate(training, 0.5, progress) == pytest.approx(expected)


def test_rate_stays_where_there_is_neither():
    training = Training(epochs=10)
    assert [find_learning_rate(training, 0.5, p) for p in (0.0, 3.7, 10.0)] == [0.5] * 3


def test_losses_are_cross_entropies_whatever_the_size_of_the_logits():
    logits = numpy.array([[0.0, math.log(3.0)], [5000.0, 0.0]], "float32")
    labels = numpy.array([1, 0])
    # -log(3 / 4) and 0
    assert sum_losses(logits, labels) == pytest.approx(-math.log(0.75), rel=1e-6)


def test_each_sample_is_in_one_batch_of_one_rank_and_epochs_differ():
    # 27 samples on two ranks in batches of 4: three global batches, and three samples left over
    orders = [FileOrder(CASE, place(rank), 27) for rank in (0, 1)]
    assert [len(order) for order in orders] == [9, 9]
    epochs = []
    for epoch in range(3):
        keys = [key for order in orders for n in range(3) for key in order[3 * epoch + n]]
        assert {key[0] for key in keys} == {epoch}
        indices = [index for _, index in keys]
        assert len(set(indices)) == 24
        epochs.append(indices)
    assert epochs[0] != epochs[1] != epochs[2]


def test_order_is_the_same_in_whatever_sequence_it_is_asked_for():
    order = FileOrder(CASE, place(0), 27)
    backwards = [order[n] for n in reversed(range(9))]
    assert backwards[::-1] == list(FileOrder(CASE, place(0), 27))
    assert list(pickle.loads(pickle.dumps(order))) == list(order)


def test_order_ends_where_it_says():
    order = FileOrder(CASE, place(0), 27, batches=4)
    assert len(list(order)) == 4
    with pytest.raises(IndexError):
        order[4]


def test_epoch_has_whole_steps_of_accumulated_batches_only():
    order = FileOrder(vary(CASE, gradient_accumulation=2), place(0), 27)
    assert order.batches_per_epoch == 2


def test_data_that_are_less_than_a_step_are_named_with_what_to_do():
    case = vary(CASE, gradient_accumulation=4)
    with pytest.raises(DataError, match=r"27 training samples .* 32"):
        FileOrder(case, place(0), 27)


def test_mixture_is_of_two_samples_with_their_shares_as_probabilities():
    dataset = SyntheticSamples(SMALL, 8, seed=3)
    mixed = Mixtures(dataset, classes=10, alpha=1.0, seed=3)
    assert len(mixed) == 8
    for index in range(8):
        sample = mixed.read_sample(index, 0)
        assert sample["images"].dtype == sample["labels"].dtype == "float32"
        assert sample["labels"].sum() == pytest.approx(1.0)
        candidates = [
            find_mixture(dataset, index, partner, sample["labels"]) for partner in range(8)
        ]
        assert any(numpy.allclose(sample["images"], one, atol=1e-5) for one in candidates)


def find_mixture(dataset, index, partner, labels):
    """The image that these two samples make with the share that the labels tell of the first."""
    own, other = (dataset.read_sample(i, 0) for i in (index, partner))
    share = 1.0 if own["labels"] == other["labels"] else labels[own["labels"]]
    if own["labels"] == other["labels"] and index != partner:
        # the labels do not tell the share
        return numpy.full_like(own["images"], numpy.nan)
    return share * own["images"] + (1 - share) * other["images"]


def test_mixtures_change_with_the_epoch_and_are_the_same_on_every_rank():
    dataset = SyntheticSamples(SMALL, 8, seed=3)
    mixed = Mixtures(dataset, classes=10, alpha=0.2, seed=3)
    again = Mixtures(dataset, classes=10, alpha=0.2, seed=3)
    same = mixed.read_sample(2, 1)["images"]
    assert (again.read_sample(2, 1)["images"] == same).all()
    assert (mixed.read_sample(2, 2)["images"] != same).any()
