"""An array -> its file, whole or not at all."""

import os
from pathlib import Path


def write_array(path: Path, array: "numpy.ndarray") -> None:  # type: ignore  # noqa: F821
    """Write a [ranks, steps] array in seconds, whole or not at all."""
    import numpy

    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        numpy.save(file, array)
    os.replace(str(partial), str(path))
