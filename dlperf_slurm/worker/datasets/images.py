"""A folder of images -> a classifier's samples: decoded, augmented in training, normalized.

    DIRECTORY/train/CLASS/*.jpeg  DIRECTORY/val/CLASS/*.jpeg

The layout is ImageNet's. Images end in .jpeg, .jpg or .png, in upper or lower case; names that
begin with a dot are skipped. Names are bytes, because on Linux a file name need not be text.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, List, Tuple

from dlperf_slurm.worker.annotations import Array, Arrays, Protocol
from dlperf_slurm.worker.datasets import augment
from dlperf_slurm.worker.datasets.description import (
    CROP_AND_FLIP,
    TRAIN_SPLIT,
    DataError,
    ImageDescription,
    read_description,
)

if TYPE_CHECKING:
    from PIL.Image import Image


class ImageModel(Protocol):
    """What a model of images must define."""

    @property
    def image_size(self) -> int: ...

    @property
    def classes(self) -> int: ...


SUFFIXES = (b".jpeg", b".jpg", b".png")
LAYOUT = "train/CLASS/*.jpeg and val/CLASS/*.jpeg"


class Folder:
    """One split of a folder; images are listed when it is opened, and decoded when read."""

    def __init__(self, data_dir: str, split: str, definition: ImageModel, seed: int) -> None:
        import numpy

        check_pillow()
        self._size = definition.image_size
        self._seed = seed
        self._is_training = split == TRAIN_SPLIT
        self._description = describe_images(data_dir)
        self._folder = os.path.join(os.fsencode(data_dir), os.fsencode(split))
        # sorted as bytes; a class's label is its index
        self._classes = _list_class_folders(os.path.join(data_dir, TRAIN_SPLIT))
        if len(self._classes) > definition.classes:
            raise DataError(
                f"{data_dir!r} has {len(self._classes)} classes, but the model has "
                f"{definition.classes}; set classes = {len(self._classes)} in the matrix's "
                "[[model]] table"
            )
        images = list_images(data_dir, split, self._classes)
        # Two arrays, not a list: the reference counts of a million strings would make each forked
        # loader process write to, and so copy, all of that memory.
        self._names = numpy.array([name for name, _ in images])
        self._labels = numpy.array([label for _, label in images], numpy.int64)

    def __len__(self) -> int:
        return len(self._labels)

    def find_path(self, index: int) -> bytes:
        """Return the path of a sample's file."""
        class_name = self._classes[self._labels[index]]
        return os.path.join(self._folder, class_name, bytes(self._names[index]))

    def read_sample(self, index: int, epoch: int) -> Arrays:
        """Return {"images": float32 [channel, height, width], normalized, "labels": int64 []}.

        In training the image is augmented at random, by seed, epoch and index.
        """
        import numpy

        pixels = self._choose_pixels(decode_image(self.find_path(index)), index, epoch)
        return {"images": augment.normalize(pixels), "labels": numpy.array(self._labels[index])}

    def _choose_pixels(self, image: "Image", index: int, epoch: int) -> Array:
        import numpy

        is_photograph = self._description.augmentation == CROP_AND_FLIP
        if not self._is_training:
            # a character fills its image: a centre crop would cut it off
            choose = augment.crop_centre if is_photograph else augment.fit
            return choose(image, self._size)
        random = numpy.random.RandomState([self._seed, epoch, index])
        if is_photograph:
            least_area = self._description.least_crop_area
            return augment.crop_and_flip(image, self._size, random, least_area)
        return augment.shift(image, self._size, random)


def check_pillow() -> None:
    """Raise DataError if Pillow is missing, before a loader process would fail."""
    if find_spec("PIL") is None:
        raise DataError("reading images needs Pillow, which this Python lacks: pip install pillow")


def describe_images(data_dir: str) -> ImageDescription:
    """Read dataset.json; if there is none, assume photographs, as in ImageNet. Raises DataError."""
    try:
        return read_description(Path(data_dir), ImageDescription)
    except FileNotFoundError:
        return ImageDescription()


def list_images(data_dir: str, split: str, classes: List[bytes]) -> List[Tuple[bytes, int]]:
    """Return each image of a split as (file name, label), sorted by label and name.

    Raises DataError for a class folder without an image, and for one that is not in `classes`,
    because labels would then mean other classes than in training.
    """
    folder = os.path.join(data_dir, split)
    labels = {name: label for label, name in enumerate(classes)}
    images = []
    for class_name in _list_class_folders(folder):
        class_folder = os.path.join(os.fsencode(folder), class_name)
        if class_name not in labels:
            raise DataError(
                f"{os.fsdecode(class_folder)!r} has no folder of the same name in {TRAIN_SPLIT}/; "
                "remove it, or add training images of this class"
            )
        names = _list_image_names(class_folder)
        if not names:
            raise DataError(
                f"{os.fsdecode(class_folder)!r} has no images (.jpeg, .jpg, .png); "
                "add some, or remove the folder"
            )
        images += [(name, labels[class_name]) for name in names]
    return images


def _list_class_folders(folder: str) -> List[bytes]:
    """Return the class folders of a split, sorted as bytes; raises DataError if there are none."""
    try:
        with os.scandir(os.fsencode(folder)) as entries:
            names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith(b"."))
    except OSError as error:
        raise DataError(
            f"{folder!r} cannot be read ({error.strerror}); images are expected as {LAYOUT} "
            "below the data set's folder; to generate such a data set: `dlperf-slurm data make "
            "images`"
        ) from error
    if not names:
        raise DataError(f"{folder!r} has no class folders; images are expected as {LAYOUT}")
    return names


def _list_image_names(class_folder: bytes) -> List[bytes]:
    try:
        names = os.listdir(class_folder)
    except OSError as error:
        raise DataError(
            f"{os.fsdecode(class_folder)!r} cannot be read: {error.strerror}"
        ) from error
    return sorted(n for n in names if n.lower().endswith(SUFFIXES) and not n.startswith(b"."))


def decode_image(path: bytes) -> "Image":
    """Decode an image to 8-bit RGB.

    Raises DataError, naming the file, if that fails, or if Pillow reads more than 8 bits per
    channel (modes I and F).
    """
    import PIL.Image

    try:
        with PIL.Image.open(path) as image:
            if image.mode.startswith(("I", "F")):
                raise ValueError(f"more than 8 bits per channel (mode {image.mode})")
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError, PIL.Image.DecompressionBombError) as error:
        raise DataError(
            f"{os.fsdecode(path)!r} cannot be decoded: {error}; convert, replace or remove it"
        ) from error
