"""The folder of a start <-> what lies there beside its record: one file, in place of many.

While a start goes on, each thing is a file of its own, which survives whatever ends the start. When
it has ended well, these are folded into one ZIP file, whose arrays `numpy.load` reads by name. What
reads them takes either, as a death between the two leaves both.
"""

import io
from contextlib import suppress
from pathlib import Path
from typing import Dict, Iterator, Mapping, NamedTuple, Optional, Tuple

from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import ContractError, read_json
from dlperf_slurm.contract.nodes import NODES_DIR
from dlperf_slurm.contract.peaks import PEAKS_FILE
from dlperf_slurm.contract.record import (
    DATA_WAIT_SECONDS_FILE,
    STEP_SECONDS_FILE,
    TOKEN_SECONDS_FILE,
    WARMUP_STEP_SECONDS_FILE,
)
from dlperf_slurm.contract.surroundings import SURROUNDINGS_FILE
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.archives import list_members, read_member, write_members
from dlperf_slurm.files.reading import ARRAY_LIMIT_BYTES, JSON_LIMIT_BYTES, open_file, read_bytes
from dlperf_slurm.files.writing import remove_file, write_file

DETAILS_FILE = "details.npz"
# arrays "HOST/DEVICE/COLUMN" of all samples; device -1 is the host
SAMPLES_FILE = "telemetry.npz"
# what a launcher and its ranks print
STREAM_FILES = ("out", "err")

_FOLDED = (
    STEP_SECONDS_FILE,
    WARMUP_STEP_SECONDS_FILE,
    DATA_WAIT_SECONDS_FILE,
    TOKEN_SECONDS_FILE,
    SAMPLES_FILE,
    SURROUNDINGS_FILE,
    PEAKS_FILE,
)


class Detail(NamedTuple):
    """The content of a file beside a record, and where it stood."""

    content: bytes
    where: str


def fold_details(folder: Path, case: Case) -> None:
    """Fold what lies beside the record of a start that has ended well, of which nobody writes more.

    What it printed stays as it is, unless it printed nothing; the file of its case is removed where
    it says no more than `case`, that of the record. Where there is no room for the fold, all stays.
    Raises OSError for files that cannot be removed.
    """
    try:
        contents = dict(_read_loose(folder))
        folded = _read_folded(folder, dict.fromkeys(contents, ARRAY_LIMIT_BYTES), folder)
        if folded is not None:
            # a death came between: what is folded already need only be removed
            contents = {
                name: content
                for name, content in contents.items()
                if name in folded and folded[name].content == content
            }
        elif contents:
            buffer = io.BytesIO()
            write_members(buffer, contents.items())
            # on the disk before anything that it has is removed
            write_file(folder / DETAILS_FILE, buffer.getvalue(), is_synced=True)
    except FileProblem:
        return
    for name in contents:
        remove_file(folder / name)
    with suppress(OSError):
        # other files may lie there
        (folder / NODES_DIR).rmdir()
    for name in STREAM_FILES:
        if _is_empty(folder / name):
            remove_file(folder / name)
    with suppress(ContractError, FileNotFoundError):
        if read_json(folder / CASE_FILE, Case) == case:
            remove_file(folder / CASE_FILE)


def read_details(folder: Path, limits: Mapping[str, int], root: Path) -> Dict[str, Detail]:
    """The files of these names that lie beside the record of a start, or are folded there.

    `limits` has the most bytes that each may have; what nobody wrote is left out. Raises
    FileProblem for what is not to be read; below `root`, no link is followed.
    """
    folded = _read_folded(folder, limits, root)
    if folded is not None:
        return folded
    found = {}
    for name, limit in limits.items():
        with suppress(FileNotFoundError):
            found[name] = Detail(read_bytes(folder / name, limit, root), str(folder / name))
    if len(found) < len(limits):
        # what is missing may just have been folded
        folded = _read_folded(folder, limits, root)
    return found if folded is None else folded


def _read_folded(
    folder: Path, limits: Mapping[str, int], root: Path
) -> Optional[Dict[str, Detail]]:
    """None where nothing is folded."""
    path = folder / DETAILS_FILE
    found = {}
    try:
        with open_file(path, root) as file:
            members = list_members(file, str(path))
            for name in limits.keys() & members.keys():
                where = f"{path}/{name}"
                content = read_member(file, members[name], limits[name], where)
                found[name] = Detail(content, where)
    except FileNotFoundError:
        return None
    return found


def _read_loose(folder: Path) -> Iterator[Tuple[str, bytes]]:
    """What is to be folded, by its name below the folder."""
    for name in _FOLDED:
        with suppress(FileNotFoundError):
            yield name, read_bytes(folder / name, ARRAY_LIMIT_BYTES)
    for path in sorted((folder / NODES_DIR).glob("*.json")):
        yield f"{NODES_DIR}/{path.name}", read_bytes(path, JSON_LIMIT_BYTES)


def _is_empty(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except FileNotFoundError:
        return False
