"""Options of a data set -> a complete folder of data files for the worker.

One module per kind of data; the readers are in `worker.datasets`.
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar, Protocol, Union

from dlperf_slurm.errors import InputError
from dlperf_slurm.worker.datasets.description import (
    DESCRIPTION_FILE,
    ImageDescription,
    TextDescription,
)


class DatasetRecipe(Protocol):
    """The options of a data set, and how to write its files: a frozen dataclass.

    `DATASET` is the kind of data, "images" or "text", as models that read such files name it.
    """

    DATASET: ClassVar[str]

    @property
    def sizes(self) -> Mapping[str, int]:
        """The model parameters that a model needs to read the files, such as {"classes": 1000}."""

    def write_files(self, folder: Path) -> str:
        """Write the files to an empty folder; return a description such as "80 training images".

        Raises InputError if the files cannot be made.
        """


def ignore(line: str) -> None:
    """Discard a progress message: the default of `report`."""


def make_dataset(
    directory: Path, recipe: DatasetRecipe, report: Callable[[str], None] = ignore
) -> str:
    """Make a data set at `directory`, with progress messages to `report`; return its description.

    The files are written to a temporary folder, which is renamed at the end, so that an interrupted
    data set never looks complete. Raises InputError if `directory` exists or cannot be written.
    """
    target = directory.absolute()
    try:
        target.name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{target.name!a}: the name is not valid UTF-8, so no TOML file can contain it; choose "
            "another name"
        ) from error
    if os.path.lexists(target):
        raise InputError(f"{directory}: already exists; remove it, or name another folder")
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
    """Write the description that readers need, the file dataset.json, to a data set's folder."""
    text = json.dumps(asdict(description), indent=1)
    (folder / DESCRIPTION_FILE).write_text(f"{text}\n", encoding="utf-8")


NEWS_SECONDS = 5.0


@contextmanager
def report_progress(
    folder: Path, report: Callable[[str], None], news_seconds: float = NEWS_SECONDS
) -> Iterator[None]:
    """Pass the size of a folder to `report` every `news_seconds` during the `with` block."""
    is_done = threading.Event()
    start = time.monotonic()

    def tell() -> None:
        while not is_done.wait(news_seconds):
            files, size_bytes = measure(folder)
            seconds = time.monotonic() - start
            report(f"{files} files, {size_bytes / 1e6:.1f} MB so far, {seconds:.0f} s")

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


def measure(folder: Path) -> tuple[int, int]:
    """Return the number of files below a folder, and the sum of their sizes in bytes."""
    sizes = []
    for path in folder.rglob("*"):
        # a temporary file may be renamed meanwhile
        with suppress(OSError):
            if path.is_file():
                sizes.append(path.stat().st_size)
    return len(sizes), sum(sizes)
