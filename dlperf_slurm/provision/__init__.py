"""What a run needs before it starts: frameworks' environments, data sets, example files."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.errors import InputError

EXAMPLE_DIRS = ("matrices", "site_configs")


def copy_examples(directory: Path) -> Iterator[Path]:
    """Copy the shipped matrices and site configs; yields each new file.

    Raises InputError before anything is written when a file is there already.
    """
    copies = {
        source: directory / folder / source.name
        for folder in EXAMPLE_DIRS
        for source in sorted(find_resource_dir(folder).glob("*.toml"))
    }
    present = [str(target) for target in copies.values() if target.exists()]
    if present:
        raise InputError(f"nothing was copied: {', '.join(present)} would be overwritten")
    for source, target in copies.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
        yield target
