"""Files that are made anew in a folder -> in the place of those that were made there before."""

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

# the file of such a folder that lists what is in it, with digests
LIST_FILE = ".made.json"
# a plot is a hundredth of it; what is larger is somebody else's
LARGEST_BYTES = 64 * MIB


def replace_files(folder: Path, root: Path, contents: Mapping[str, bytes]) -> None:
    """Write files by their names into a folder, and remove those that an earlier call wrote there.

    Only what the folder's list has, by name and content, is removed: what somebody put there, or
    changed, stays. Raises FileProblem as `write_file` does; below `root`, no link is followed.
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
    # the list first: a file that it has, and that is not there or not the same, is left alone
    text = json.dumps({**made, **digests}, indent=1, sort_keys=True)
    write_file(folder / LIST_FILE, text.encode(), root)
    for name, content in contents.items():
        write_file(folder / name, content, root)
    text = json.dumps(digests, indent=1, sort_keys=True)
    write_file(folder / LIST_FILE, text.encode(), root)


def is_own(path: Path, root: Path, digest: Any) -> bool:
    """Whether a file of that digest is there."""
    with suppress(OSError):
        content = read_bytes(path, LARGEST_BYTES, root)
        return bool(hashlib.sha256(content).hexdigest() == digest)
    return False


def _read_list(folder: Path, root: Path) -> dict[str, Any]:
    """The digests by name; none where there is no list, or none that can be believed."""
    try:
        made = read_json(folder / LIST_FILE, MIB, root)
    except (FileNotFoundError, FileProblem):
        return {}
    if not isinstance(made, dict):
        return {}
    return {name: digest for name, digest in made.items() if name == Path(name).name}
