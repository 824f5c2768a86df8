"""Preparation of runs: frameworks' environments, data sets, site files, example files."""

import os
from collections.abc import Iterator
from pathlib import Path

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.errors import InputError
from dlperf_slurm.files.folders import make_folder
from dlperf_slurm.files.writing import write_file

EXAMPLE_DIRS = ("matrices", "site_configs")


def copy_examples(directory: Path) -> Iterator[Path]:
    """Copy the shipped matrices and site configs to folders below `directory`; yield each new file.

    Raises InputError if a file exists already, before anything is written, or if a file cannot be
    written.
    """
    copies = {
        source: directory / folder / source.name
        for folder in EXAMPLE_DIRS
        for source in sorted(find_resource_dir(folder).glob("*.toml"))
    }
    present = [str(target) for target in copies.values() if os.path.lexists(target)]
    if present:
        raise InputError(f"nothing was copied: {', '.join(present)} would be overwritten")
    for source, target in copies.items():
        try:
            directory.mkdir(parents=True, exist_ok=True)
            make_folder(target.parent, root=directory)
            write_file(target, source.read_bytes(), root=directory)
        except OSError as error:
            raise InputError(f"{directory}: nothing more was copied: {error}") from error
        yield target
