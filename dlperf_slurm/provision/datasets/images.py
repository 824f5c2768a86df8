"""A recipe -> folders of images in ImageNet's layout: synthetic photographs, handwritten digits.

The photographs are JPEG files with the decoding cost of real ones: random images with the power
spectrum of natural images. The digits are a small real data set, 1,797 images of 8 x 8 pixels in
10 classes: UCI's "Optical Recognition of Handwritten Digits", the test split of which is included
in scikit-learn.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy
import PIL.Image

from dlperf_slurm.errors import InputError
from dlperf_slurm.provision.datasets import write_description
from dlperf_slurm.version import __version__
from dlperf_slurm.worker.datasets.description import SHIFT, TRAIN_SPLIT, VAL_SPLIT, ImageDescription

if TYPE_CHECKING:
    from numpy.typing import NDArray

JPEG_QUALITY = 90

# the number of landscape images in four; the others are portrait
LYING = 3

FIELDS = 4

# Standard deviations of pixels (0 ... 255) for which JPEG files of 500 x 375 pixels at quality 90
# are as large as those of ImageNet, about 110 kB each (138 GB for 1.28 million).
LUMINANCE_DEVIATION = 45.0
CHROMINANCE_DEVIATION = 12.0

DIGIT_CLASSES = 10
DIGIT_VALIDATION_PART = 0.2

# scikit-learn's digits have pixels of 0 ... 16
LARGEST_DIGIT_PIXEL = 16

# the smallest size that all image models accept
DIGIT_IMAGE_SIZE = 32


@dataclass(frozen=True)
class ImageRecipe:
    """Options of a data set of random images: numbers of images and classes, size, seed.

    `size` is the longer side of an image in pixels.
    """

    train: int
    val: int
    classes: int
    size: int
    seed: int

    DATASET: ClassVar[str] = "images"

    @property
    def sizes(self) -> Mapping[str, int]:
        return {"classes": self.classes}

    def write_files(self, folder: Path) -> str:
        """Write random images, whose classes cannot be learned; return a description.

        Image n is of class n modulo the number of classes. Raises InputError if there are fewer
        images than classes.
        """
        if min(self.train, self.val) < self.classes:
            raise InputError(
                f"{self.classes} classes need at least {self.classes} training and "
                f"{self.classes} validation images; --train is {self.train}, --val is {self.val}"
            )
        fields = make_fields(self.size, numpy.random.RandomState([self.seed]))
        for number, (split, count) in enumerate(((TRAIN_SPLIT, self.train), (VAL_SPLIT, self.val))):
            for index in range(count):
                random = numpy.random.RandomState([self.seed, number, index])
                class_folder = folder / split / f"class-{index % self.classes:04d}"
                class_folder.mkdir(parents=True, exist_ok=True)
                # three in four images are landscape
                sides = self.size, max(1, self.size * 3 // 4)
                width, height = sides if random.randint(4) < LYING else sides[::-1]
                image = PIL.Image.fromarray(draw_image(fields, width, height, random))
                image.save(class_folder / f"{split}-{index:08d}.jpeg", quality=JPEG_QUALITY)
        origin = f"dlperf_slurm {__version__}: random synthetic images, seed {self.seed}"
        write_description(folder, ImageDescription(name="images", origin=origin))
        return f"{self.train} training and {self.val} validation images of {self.classes} classes"


def make_fields(least_side: int, random: numpy.random.RandomState) -> "NDArray[Any]":
    """Make periodic random fields with mean 0 and deviation 1: float32 [field, side, side].

    Their side is the next power of two >= `least_side` pixels.
    """
    side = 1 << (least_side - 1).bit_length()
    return numpy.stack([_make_field(side, random) for _ in range(FIELDS)])


def _make_field(side: int, random: numpy.random.RandomState) -> "NDArray[Any]":
    """Make a random field with the power spectrum of natural images, 1 / frequency^2 (Field 1987).

    Shape: float32 [side, side], with mean 0 and standard deviation 1.
    """
    rows, columns = numpy.fft.fftfreq(side)[:, None], numpy.fft.rfftfreq(side)[None]
    frequency = numpy.hypot(rows, columns)
    # mean 0: no power at frequency 0
    frequency[0, 0] = numpy.inf
    real, imaginary = random.standard_normal((2, *frequency.shape))
    field = numpy.fft.irfft2((real + 1j * imaginary) / frequency, (side, side))
    return (field / field.std()).astype(numpy.float32)


def draw_image(
    fields: "NDArray[Any]", width: int, height: int, random: numpy.random.RandomState
) -> "NDArray[Any]":
    """Draw a random image as a sum of sections of the fields, cut out at random positions.

    Shape: uint8 [height, width, 3].
    """

    def draw() -> "NDArray[Any]":
        field = fields[random.randint(FIELDS)]
        upper, left = random.randint(len(field), size=2)
        rows = field.take(numpy.arange(upper, upper + height), axis=0, mode="wrap")
        return rows.take(numpy.arange(left, left + width), axis=1, mode="wrap")

    luminance = (draw() + draw()) * (LUMINANCE_DEVIATION / 2**0.5)
    colours = numpy.stack([draw() for _ in range(3)], axis=2) * CHROMINANCE_DEVIATION
    pixels = luminance[:, :, None] + colours + random.uniform(90, 150)
    return pixels.clip(0, 255).astype(numpy.uint8)


@dataclass(frozen=True)
class DigitRecipe:
    """Options of the data set of handwritten digits; `seed` selects the validation images."""

    seed: int

    DATASET: ClassVar[str] = "images"

    @property
    def sizes(self) -> Mapping[str, int]:
        return {"classes": DIGIT_CLASSES, "image_size": DIGIT_IMAGE_SIZE}

    def write_files(self, folder: Path) -> str:
        """Write the digits in their original size, a fifth of each class for validation.

        Returns a description. Raises InputError if scikit-learn is not installed.
        """
        images, labels = load_digits()
        is_val = choose_validation(labels, self.seed)
        for index, (image, label) in enumerate(zip(images, labels)):
            class_folder = folder / (VAL_SPLIT if is_val[index] else TRAIN_SPLIT) / str(label)
            class_folder.mkdir(parents=True, exist_ok=True)
            PIL.Image.fromarray(image).save(class_folder / f"{index:04d}.png")
        origin = f"scikit-learn's load_digits (UCI 80), a fifth for validation, seed {self.seed}"
        write_description(folder, ImageDescription("digits", SHIFT, origin=origin))
        count = int(is_val.sum())
        train = len(labels) - count
        return f"{train} training and {count} validation images of {DIGIT_CLASSES} classes"


def load_digits() -> "tuple[NDArray[Any], NDArray[Any]]":
    """Load the digits, white on black: images uint8 [image, 8, 8] and labels int64 [image].

    Raises InputError if scikit-learn, which includes them, is not installed.
    """
    try:
        import sklearn.datasets
    except ImportError as error:
        raise InputError(
            'the digits come with scikit-learn, which is not installed: pip install "'
            'dlperf-slurm[digits]"'
        ) from error
    digits = sklearn.datasets.load_digits()
    images = (digits.images * (255 / LARGEST_DIGIT_PIXEL)).round().astype(numpy.uint8)
    return images, digits.target.astype(numpy.int64)


def choose_validation(labels: "NDArray[Any]", seed: int) -> "NDArray[Any]":
    """Select a fifth of each class for validation: labels int [image] -> bool [image]."""
    chosen: NDArray[Any] = numpy.zeros(len(labels), bool)
    for label in numpy.unique(labels):
        members = numpy.flatnonzero(labels == label)
        order = numpy.random.RandomState([seed, label]).permutation(members)
        chosen[order[: round(len(members) * DIGIT_VALIDATION_PART)]] = True
    return chosen
