"""Samples of images -> mixtures of two, with the probabilities of their labels (mixup)."""

from typing import TYPE_CHECKING, Any, Dict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlperf_slurm.worker.datasets import Dataset

# a stream of its own: whatever else is drawn for a sample stays as it is without mixing
_STREAM = 1


class Mixtures:
    """Each sample mixed with another one, as Zhang et al. 2017 (arXiv:1710.09412) draw them.

    The share of the sample itself is Beta(alpha, alpha) distributed, its partner any sample. Both
    are functions of seed, epoch and index alone, so that a sample is the same on any rank; the
    price is that each sample is decoded twice.
    """

    def __init__(self, dataset: "Dataset", classes: int, alpha: float, seed: int) -> None:
        self._dataset = dataset
        self._classes = classes
        self._alpha = alpha
        self._seed = seed

    def __len__(self) -> int:
        return len(self._dataset)

    def read_sample(self, index: int, epoch: int) -> "Dict[str, NDArray[Any]]":
        """images as they come; labels: float32 [classes], the probability of each."""
        import numpy

        random = numpy.random.RandomState([self._seed, epoch, index, _STREAM])
        share = numpy.float32(random.beta(self._alpha, self._alpha))
        partner = random.randint(len(self._dataset))
        parts = [self._dataset.read_sample(i, epoch) for i in (index, partner)]
        labels: "NDArray[Any]" = numpy.zeros(self._classes, numpy.float32)
        for part, weight in zip(parts, (share, 1 - share)):
            labels[part["labels"]] += weight
        images = share * parts[0]["images"] + (1 - share) * parts[1]["images"]
        return {"images": images, "labels": labels}
