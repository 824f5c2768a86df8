"""Preparation of runs: frameworks' environments, data sets, site files, example files."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.errors import InputError
from dlperf_slurm.files.folders import make_folder
from dlperf_slurm.files.writing import write_file

EXAMPLE_DIRS = ("matrices", "site_configs")
SCHEMA_FILE = "schema.json"


def copy_examples(directory: Path, schemas: Mapping[str, Any]) -> Iterator[Path]:
    """Copy the shipped matrices and site configs to folders below `directory`; yield each new file.

    `schemas` has the JSON Schema of each folder, by name, which is written to the folder and named
    in its TOML files. Raises InputError if a file exists already, before anything is written, or if
    a file cannot be written.
    """
    copies: dict[Path, bytes] = {}
    for folder in EXAMPLE_DIRS:
        schema = json.dumps(schemas[folder], indent=1)
        copies[directory / folder / SCHEMA_FILE] = f"{schema}\n".encode()
        for source in sorted(find_resource_dir(folder).glob("*.toml")):
            line = f"#:schema ./{SCHEMA_FILE}\n"
            copies[directory / folder / source.name] = line.encode() + source.read_bytes()
    present = [str(target) for target in copies if os.path.lexists(target)]
    if present:
        raise InputError(
            f"nothing was copied, because these files exist: {', '.join(present)}; move them"
        )
    for target, content in copies.items():
        try:
            directory.mkdir(parents=True, exist_ok=True)
            make_folder(target.parent, root=directory)
            write_file(target, content, root=directory)
        except OSError as error:
            raise InputError(f"{directory}: copying failed: {error}") from error
        yield target
