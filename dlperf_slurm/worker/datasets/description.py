"""The dataset.json of a folder -> a validated description of the folder's files.

`dlperf-slurm data make` writes these files on the login node.
"""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Type, TypeVar

from dlperf_slurm.contract.json_files import ContractError, build_dataclass

DESCRIPTION_FILE = "dataset.json"

TRAIN_SPLIT = "train"
VAL_SPLIT = "val"

CROP_AND_FLIP = "crop-and-flip"
SHIFT = "shift"
AUGMENTATIONS = (CROP_AND_FLIP, SHIFT)


class DataError(ValueError):
    """Data files that cannot be used; the message names them and says what to do."""


@dataclass(frozen=True)
class ImageDescription:
    """What the images of a folder are, and which augmentation keeps their meaning.

    "crop-and-flip" is for photographs: a crop of at least `least_crop_area` of the image, or its
    mirror image, shows the same object. "shift" is for characters that fill the image: a mirrored 2
    is not a 2, and half of an 8 may be a 3, but shifted by up to an eighth of its side it reads the
    same. `origin` says where the files come from.
    """

    name: str = ""
    augmentation: str = CROP_AND_FLIP
    least_crop_area: float = 0.08
    origin: str = ""

    def find_problem(self) -> str:
        """Return what is wrong with the first invalid value, or ''."""
        if self.augmentation not in AUGMENTATIONS:
            return f"augmentation is {self.augmentation!r}; allowed: {', '.join(AUGMENTATIONS)}"
        if not 0 < self.least_crop_area <= 1:
            return f"least_crop_area is {self.least_crop_area}; allowed: 0 < value <= 1"
        return ""


@dataclass(frozen=True)
class TextDescription:
    """The token ids of a text; ordinary tokens are first_word_id <= id < vocabulary_size.

    `origin` says where the files come from.
    """

    vocabulary_size: int
    first_word_id: int
    classification_id: int
    separator_id: int
    mask_id: int
    name: str = ""
    origin: str = ""

    def find_problem(self) -> str:
        """Return what is wrong with the first invalid value, or ''."""
        for name in ("first_word_id", "classification_id", "separator_id", "mask_id"):
            value = getattr(self, name)
            if not 0 <= value < self.vocabulary_size:
                return f"{name} is {value}; allowed: 0 <= value < vocabulary_size"
        return ""


D = TypeVar("D", ImageDescription, TextDescription)


def read_description(data_dir: Path, kind: Type[D]) -> D:
    """Read a folder's dataset.json as an ImageDescription or a TextDescription (`kind`).

    Raises FileNotFoundError if there is none, and DataError for invalid content.
    """
    path = data_dir / DESCRIPTION_FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        description = build_dataclass(kind, data, repr(str(path)))
    except ContractError as error:
        known = ", ".join(field.name for field in fields(kind))
        raise DataError(f"{error}; keys: {known}") from error
    except ValueError as error:
        raise DataError(f"{str(path)!r}: not JSON: {error}") from error
    problem = description.find_problem()
    if problem:
        raise DataError(f"{str(path)!r}: {problem}")
    return description
