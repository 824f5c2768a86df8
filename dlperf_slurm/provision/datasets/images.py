"""Made-up photographs in ImageNet's layout: JPEG files that cost as much to read as real ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Union

import numpy
import PIL.Image

from dlperf_slurm import __version__
from dlperf_slurm.errors import InputError
from dlperf_slurm.provision.datasets import write_description
from dlperf_slurm.provision.datasets.fields import Fields, draw_image, make_fields
from dlperf_slurm.worker.datasets.description import (
    TRAIN_SPLIT,
    VAL_SPLIT,
    ImageDescription,
)

JPEG_QUALITY = 90

# of four images, so many lie; the others stand
LYING = 3


@dataclass(frozen=True)
class ImageRecipe:
    """How many images of how many classes; `size` is their longer side in pixels."""

    train: int
    val: int
    classes: int
    size: int
    seed: int

    @property
    def model(self) -> Mapping[str, Union[str, int]]:
        return {"name": "resnet50", "classes": self.classes}

    def write_files(self, folder: Path) -> str:
        """Labels are taken in turn; there is nothing in an image by which to learn its label."""
        if min(self.train, self.val) < self.classes:
            raise InputError(
                f"{self.classes} classes need as many images to train and to validate; "
                f"--train is {self.train}, --val is {self.val}"
            )
        fields = make_fields(self.size, numpy.random.RandomState([self.seed]))
        for number, (split, count) in enumerate(((TRAIN_SPLIT, self.train), (VAL_SPLIT, self.val))):
            for index in range(count):
                random = numpy.random.RandomState([self.seed, number, index])
                class_folder = folder / split / f"class-{index % self.classes:04d}"
                class_folder.mkdir(parents=True, exist_ok=True)
                self._write_image(class_folder / f"{split}-{index:08d}.jpeg", fields, random)
        origin = f"dlperf_slurm {__version__}: random fields, seed {self.seed}"
        write_description(folder, ImageDescription(name="images", origin=origin))
        return f"{self.train} training and {self.val} validation images of {self.classes} classes"

    def _write_image(self, path: Path, fields: Fields, random: numpy.random.RandomState) -> None:
        sides = self.size, max(1, self.size * 3 // 4)
        width, height = sides if random.randint(4) < LYING else sides[::-1]
        pixels = draw_image(fields, width, height, random)
        PIL.Image.fromarray(pixels).save(path, quality=JPEG_QUALITY)
