"""A folder in ImageNet's layout -> its classes, and the files of a split with their labels.

    DIRECTORY/train/CLASS/*.jpeg  DIRECTORY/val/CLASS/*.jpeg

Images end in .jpeg, .jpg or .png, in capitals or not; names that begin with a dot are passed over.
Names are bytes, as on Linux a file's name need not be text.
"""

import os
from typing import List, Tuple

from dlperf_slurm.worker.datasets.description import TRAIN_SPLIT, DataError

SUFFIXES = (b".jpeg", b".jpg", b".png")
LAYOUT = "train/CLASS/*.jpeg and val/CLASS/*.jpeg"


def list_classes(data_dir: str) -> List[bytes]:
    """The class folders of train/, sorted by their bytes: a class's label is its index.

    Raises DataError when there are none.
    """
    folder = os.path.join(data_dir, TRAIN_SPLIT)
    classes = _list_class_folders(folder)
    if not classes:
        raise DataError(f"{folder!r} has no class folders; images are expected as {LAYOUT}")
    return classes


def list_images(data_dir: str, split: str, classes: List[bytes]) -> List[Tuple[bytes, int]]:
    """Each image of a split as (file name, label), in the order of labels and names.

    Raises DataError for a class folder without an image, and for one that is not in `classes`: with
    it, labels would mean other classes than in training.
    """
    folder = os.path.join(data_dir, split)
    labels = {name: label for label, name in enumerate(classes)}
    images = []
    for class_name in _list_class_folders(folder):
        class_folder = os.path.join(os.fsencode(folder), class_name)
        if class_name not in labels:
            raise DataError(
                f"{os.fsdecode(class_folder)!r} is no class of {TRAIN_SPLIT}/; "
                "remove it, or add images of it there"
            )
        names = _list_image_names(class_folder)
        if not names:
            raise DataError(
                f"{os.fsdecode(class_folder)!r} has no images (.jpeg, .jpg, .png); "
                "add some, or remove the folder"
            )
        images += [(name, labels[class_name]) for name in names]
    if not images:
        raise DataError(f"{folder!r} has no class folders; images are expected as {LAYOUT}")
    return images


def _list_class_folders(folder: str) -> List[bytes]:
    try:
        with os.scandir(os.fsencode(folder)) as entries:
            return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith(b"."))
    except OSError as error:
        raise DataError(
            f"{folder!r} cannot be read ({error.strerror}); images are expected as {LAYOUT} "
            "below the data set's folder; `dlperf-slurm data make images` makes some"
        ) from error


def _list_image_names(class_folder: bytes) -> List[bytes]:
    try:
        names = os.listdir(class_folder)
    except OSError as error:
        raise DataError(
            f"{os.fsdecode(class_folder)!r} cannot be read: {error.strerror}"
        ) from error
    return sorted(n for n in names if n.lower().endswith(SUFFIXES) and not n.startswith(b"."))
