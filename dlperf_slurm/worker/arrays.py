"""An array -> its file, whole or not at all."""

import io
from pathlib import Path

from dlperf_slurm.files.writing import write_file


def write_array(path: Path, array: "numpy.ndarray") -> None:  # type: ignore  # noqa: F821
    """Write a [ranks, steps] array in seconds; raises FileProblem as `write_file` does."""
    import numpy

    content = io.BytesIO()
    numpy.save(content, array)
    write_file(path, content.getvalue())
