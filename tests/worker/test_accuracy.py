"""Training to accuracy: the learning rate, mixtures of samples, losses of validation."""

import math

import pytest

from dlperf_slurm.contract.case import COSINE, Training
from dlperf_slurm.worker.accuracy import MixupImages, compute_learning_rate, sum_losses

numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")


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


class PairedSamples:
    """Eight samples, two of each label, which is the value of their only pixel."""

    def __len__(self):
        return 8

    def read_sample(self, index, epoch):
        return {"images": numpy.array([index // 2], "float32"), "labels": index // 2}


def test_mixture_is_of_two_samples_with_their_shares_as_probabilities():
    mixed = MixupImages(PairedSamples(), classes=4, alpha=1.0, seed=3)
    assert len(mixed) == 8
    for index in range(8):
        images, labels = (mixed.read_sample(index, 0)[name] for name in ("images", "labels"))
        assert images.dtype == labels.dtype == "float32"
        assert labels[index // 2] > 0
        assert numpy.count_nonzero(labels) <= 2
        assert labels.sum() == pytest.approx(1.0)
        assert images == pytest.approx([labels @ numpy.arange(4)], rel=1e-5)


def test_mixtures_change_with_the_epoch_and_are_the_same_on_every_rank():
    mixed, again = (MixupImages(PairedSamples(), classes=4, alpha=0.2, seed=3) for _ in range(2))
    images = [one.read_sample(2, epoch)["images"] for one, epoch in ((mixed, 1), (again, 1))]
    assert images[0] == images[1] != mixed.read_sample(2, 2)["images"]
