"""Generated files -> a folder, in which they replace the files of the previous call."""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.folders import make_folder, open_folder
from dlperf_slurm.files.reading import MIB, read_bytes, read_json
from dlperf_slurm.files.writing import write_file

# lists the generated files of the folder with their digests
LIST_FILE = ".made.json"
# a plot has a hundredth of this size; a larger file cannot be a generated one
LARGEST_BYTES = 64 * MIB


def replace_files(folder: Path, root: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a folder, and remove other files that an earlier call wrote there.

    The folder is made if it is missing. Its LIST_FILE has the names and SHA-256 digests of the
    files written. Only files with these names and digests are removed; others stay, but a file with
    a name in `contents` is always replaced. Raises FileProblem as `write_file`; below `root`, no
    link is followed.
    """
    made = _read_list(folder, root)
    if not made and not contents:
        return
    make_folder(folder, root)
    for name in made.keys() - contents.keys():
        if is_own(folder / name, root, made[name]):
            with open_folder(folder, root) as descriptor:
                os.unlink(name, dir_fd=descriptor)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    # the list is written first, so that files of an interrupted call are removed by the next one
    text = json.dumps({**made, **digests}, indent=1, sort_keys=True)
    write_file(folder / LIST_FILE, text.encode(), root)
    for name, content in contents.items():
        write_file(folder / name, content, root)
    text = json.dumps(digests, indent=1, sort_keys=True)
    write_file(folder / LIST_FILE, text.encode(), root)


def is_own(path: Path, root: Path, digest: Any) -> bool:
    """Return whether a file below `root` is as the tool wrote it: it has this SHA-256 digest."""
    with suppress(OSError):
        content = read_bytes(path, LARGEST_BYTES, root)
        return bool(hashlib.sha256(content).hexdigest() == digest)
    return False


def _read_list(folder: Path, root: Path) -> dict[str, Any]:
    """Read the digests in the folder's LIST_FILE, by file name; empty if missing or invalid."""
    try:
        made = read_json(folder / LIST_FILE, MIB, root)
    except (FileNotFoundError, FileProblem):
        return {}
    if not isinstance(made, dict):
        return {}
    return {name: digest for name, digest in made.items() if name == Path(name).name}
