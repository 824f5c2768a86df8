"""The dataset.json of a folder -> what its files are, checked.

The login side writes what is read here.
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
    """Files that cannot be used; the message names them and says what to do."""


@dataclass(frozen=True)
class ImageDescription:
    """What the images of a folder are, and which changes to them keep their meaning.

    "crop-and-flip" suits photographs: a crop of at least `least_crop_area` of the image, or its
    mirror image, shows the same thing. "shift" suits signs that fill their image: a mirrored 2 is
    no 2, and half of an 8 may be a 3, but moved by an eighth of its side it reads the same.
    `origin` says where the files come from.
    """

    name: str = ""
    augmentation: str = CROP_AND_FLIP
    least_crop_area: float = 0.08
    origin: str = ""

    def find_problem(self) -> str:
        """The first value that is not allowed; empty when all are."""
        if self.augmentation not in AUGMENTATIONS:
            return f"augmentation is {self.augmentation!r}; allowed: {', '.join(AUGMENTATIONS)}"
        if not 0 < self.least_crop_area <= 1:
            return f"least_crop_area is {self.least_crop_area}; allowed: 0 < value <= 1"
        return ""


@dataclass(frozen=True)
class TextDescription:
    """Which ids a text is made of: words from `first_word_id` up to `vocabulary_size`, exclusive.

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
        """The first value that is not allowed; empty when all are."""
        for name in ("first_word_id", "classification_id", "separator_id", "mask_id"):
            value = getattr(self, name)
            if not 0 <= value < self.vocabulary_size:
                return f"{name} is {value}; allowed: 0 <= value < vocabulary_size"
        return ""


D = TypeVar("D", ImageDescription, TextDescription)


def read_description(data_dir: Path, kind: Type[D]) -> D:
    """What dataset.json says; FileNotFoundError where there is none, DataError for a mistake."""
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
