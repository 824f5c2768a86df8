"""A recipe -> a folder of real files that the worker reads, whole or not at all.

One module per kind of files; what their reader expects is in `worker.datasets`.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar, Protocol, Union

from dlperf_slurm.errors import InputError
from dlperf_slurm.provision.datasets.growth import tell_growth
from dlperf_slurm.worker.datasets.description import (
    DESCRIPTION_FILE,
    ImageDescription,
    TextDescription,
)


class Recipe(Protocol):
    """What is to be made: a frozen dataclass with the values of the command's options.

    `DATASET` is the kind of data that a model names, if it reads such files.
    """

    DATASET: ClassVar[str]

    @property
    def sizes(self) -> Mapping[str, int]:
        """The parameters of a model by which it reads the files."""

    def write_files(self, folder: Path) -> str:
        """Fill an empty folder; returns what is in it now, as in "80 training images".

        Raises InputError when such files cannot be made.
        """


def ignore(line: str) -> None:
    """Tell nobody."""


def make_dataset(directory: Path, recipe: Recipe, report: Callable[[str], None] = ignore) -> str:
    """Make a data set at `directory`, with news of how far it is; returns what is in it.

    It is made beside its place and renamed, so that nothing that was interrupted looks whole.
    Raises InputError when it is there already, or cannot be written.
    """
    target = directory.absolute()
    try:
        target.name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{target.name!a}: not UTF-8, so that no TOML file can name it") from error
    if os.path.lexists(target):
        raise InputError(f"{directory}: is there already; remove it, or name another folder")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.mkdir(parents=True)
        try:
            with tell_growth(partial, report):
                contents = recipe.write_files(partial)
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial)
            raise
    except OSError as error:
        raise InputError(f"{directory}: cannot be written: {error}") from error
    return contents


def write_description(folder: Path, description: Union[ImageDescription, TextDescription]) -> None:
    """Write the dataset.json of a folder."""
    text = json.dumps(asdict(description), indent=1)
    (folder / DESCRIPTION_FILE).write_text(f"{text}\n", encoding="utf-8")
