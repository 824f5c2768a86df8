"""Handwritten digits, a small real data set: 1,797 images of 8 x 8 pixels in 10 classes.

UCI's "Optical Recognition of Handwritten Digits", of which scikit-learn ships the test part.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy
import PIL.Image

from dlperf_slurm.errors import InputError
from dlperf_slurm.provision.datasets import write_description
from dlperf_slurm.worker.datasets.description import (
    SHIFT,
    TRAIN_SPLIT,
    VAL_SPLIT,
    ImageDescription,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLASSES = 10
VALIDATION_PART = 0.2

# their pixels are 0 ... 16
LARGEST_PIXEL = 16

# the smallest that resnet50 takes
IMAGE_SIZE = 32


@dataclass(frozen=True)
class DigitRecipe:
    """Which of the digits are for validation follows from the seed."""

    seed: int

    @property
    def model(self) -> Mapping[str, Union[str, int]]:
        return {"name": "resnet50", "classes": CLASSES, "image_size": IMAGE_SIZE}

    def write_files(self, folder: Path) -> str:
        """A fifth of each class is for validation; images stay as small as they are."""
        images, labels = load_digits()
        is_val = choose_validation(labels, self.seed)
        for index, (image, label) in enumerate(zip(images, labels)):
            class_folder = folder / (VAL_SPLIT if is_val[index] else TRAIN_SPLIT) / str(label)
            class_folder.mkdir(parents=True, exist_ok=True)
            PIL.Image.fromarray(image).save(class_folder / f"{index:04d}.png")
        origin = f"scikit-learn's load_digits (UCI 80), a fifth for validation, seed {self.seed}"
        write_description(folder, ImageDescription("digits", SHIFT, origin=origin))
        count = int(is_val.sum())
        return f"{len(labels) - count} training and {count} validation images of {CLASSES} classes"


def load_digits() -> "tuple[NDArray[Any], NDArray[Any]]":
    """Images, white on black: uint8 [image, 8, 8]; and labels: int64 [image]."""
    try:
        import sklearn.datasets
    except ImportError as error:
        raise InputError(
            'the digits come with scikit-learn, which is not installed: pip install "'
            'dlperf-slurm[digits]"'
        ) from error
    digits = sklearn.datasets.load_digits()
    images = (digits.images * (255 / LARGEST_PIXEL)).round().astype(numpy.uint8)
    return images, digits.target.astype(numpy.int64)


def choose_validation(labels: "NDArray[Any]", seed: int) -> "NDArray[Any]":
    """Whether a sample is for validation, the same part of each class: bool [image]."""
    chosen: NDArray[Any] = numpy.zeros(len(labels), bool)
    for label in numpy.unique(labels):
        members = numpy.flatnonzero(labels == label)
        order = numpy.random.RandomState([seed, label]).permutation(members)
        chosen[order[: round(len(members) * VALIDATION_PART)]] = True
    return chosen
