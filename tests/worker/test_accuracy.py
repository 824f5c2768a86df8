"""Training to accuracy: the learning rate, mixtures of samples, losses of validation."""

import math

import pytest

from dlperf_slurm.contract.case import COSINE, Training
from dlperf_slurm.worker.accuracy import MixupImages, compute_learning_rate, sum_losses
from dlperf_slurm.worker.models import resnet50
from dlperf_slurm.worker.synthetic_batch import SyntheticSamples

numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")

SMALL = resnet50.Definition(image_size=32, stage_blocks=(1, 1, 1, 1), width=8, classes=10)


@pytest.mark.parametrize(
    ("progress", "expected"), [(0.0, 0.0), (1.0, 0.25), (2.0, 0.5), (6.0, 0.25), (10.0, 0.0)]
)
def test_rate_rises_over_the_warm_up_and_falls_by_half_a_cosine(progress, expected):
    training = Training(epochs=10, schedule=COSINE, warmup_epochs=2.0)
    assert compute_learning_rate(training, 0.5, progress) == pytest.approx(expected)
    # and stays where there is neither
    assert compute_learning_rate(Training(epochs=10), 0.5, progress) == 0.5


def test_losses_are_cross_entropies_whatever_the_size_of_the_logits():
    logits = numpy.array([[0.0, math.log(3.0)], [5000.0, 0.0]], "float32")
    labels = numpy.array([1, 0])
    # -log(3 / 4) and 0
    assert sum_losses(logits, labels) == pytest.approx(-math.log(0.75), rel=1e-6)


def test_mixture_is_of_two_samples_with_their_shares_as_probabilities():
    dataset = SyntheticSamples(SMALL, 8, seed=3)
    mixed = MixupImages(dataset, classes=10, alpha=1.0, seed=3)
    assert len(mixed) == 8
    for index in range(8):
        sample = mixed.read_sample(index, 0)
        assert sample["images"].dtype == sample["labels"].dtype == "float32"
        assert sample["labels"].sum() == pytest.approx(1.0)
        candidates = (mix(dataset, index, partner, sample["labels"]) for partner in range(8))
        assert any(numpy.allclose(sample["images"], one, atol=1e-5) for one in candidates)


def mix(dataset, index, partner, labels):
    """Mix the images of two samples, with the share of the first from the labels."""
    own, other = (dataset.read_sample(i, 0) for i in (index, partner))
    share = 1.0 if own["labels"] == other["labels"] else labels[own["labels"]]
    if own["labels"] == other["labels"] and index != partner:
        # the labels do not tell the share
        return numpy.full_like(own["images"], numpy.nan)
    return share * own["images"] + (1 - share) * other["images"]


def test_mixtures_change_with_the_epoch_and_are_the_same_on_every_rank():
    dataset = SyntheticSamples(SMALL, 8, seed=3)
    mixed, again = (MixupImages(dataset, classes=10, alpha=0.2, seed=3) for _ in range(2))
    same = mixed.read_sample(2, 1)["images"]
    assert (again.read_sample(2, 1)["images"] == same).all()
    assert (mixed.read_sample(2, 2)["images"] != same).any()
