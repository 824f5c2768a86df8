"""A recipe -> a complete folder of data files for the worker.

One module per kind of data; the readers are in `worker.datasets`.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar, Protocol, Union

from dlperf_slurm.errors import InputError
from dlperf_slurm.provision.datasets.progress import report_progress
from dlperf_slurm.worker.datasets.description import (
    DESCRIPTION_FILE,
    ImageDescription,
    TextDescription,
)


class DatasetRecipe(Protocol):
    """A data set to make: a frozen dataclass with the values of the command's options.

    `DATASET` is the kind of data, as in the definitions of models that read such files.
    """

    DATASET: ClassVar[str]

    @property
    def sizes(self) -> Mapping[str, int]:
        """The model parameters that a model needs to read the files."""

    def write_files(self, folder: Path) -> str:
        """Fill an empty folder; return a description such as "80 training images".

        Raises InputError if the files cannot be made.
        """


def ignore(line: str) -> None:
    """Ignore a progress message."""


def make_dataset(
    directory: Path, recipe: DatasetRecipe, report: Callable[[str], None] = ignore
) -> str:
    """Make a data set at `directory`, with progress messages; return a description of it.

    The files are written to a temporary folder, which is renamed at the end, so that an interrupted
    data set never looks complete. Raises InputError if `directory` exists or cannot be written.
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
            with report_progress(partial, report):
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
