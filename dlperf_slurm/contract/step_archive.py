"""Sidecar files of a record <-> one ZIP file, `details.npz`, that replaces them.

While an attempt's job script runs, each sidecar is a separate file, so that none is lost if the job
is killed. After success they are packed into one ZIP file, whose arrays `numpy.load` reads by name.
Readers accept both forms, as a crash while packing leaves both. A start is one execution of an
attempt's job script, with a folder of its own.
"""

import io
import os
from contextlib import suppress
from pathlib import Path
from typing import Dict, Iterator, Mapping, NamedTuple, Optional, Tuple

from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.host_noise import HOST_NOISE_FILE
from dlperf_slurm.contract.json_files import read_json
from dlperf_slurm.contract.nodes import NODES_DIR
from dlperf_slurm.contract.peaks import PEAKS_FILE
from dlperf_slurm.contract.record import (
    DATA_WAIT_SECONDS_FILE,
    STEP_SECONDS_FILE,
    TOKEN_SECONDS_FILE,
    WARMUP_STEP_SECONDS_FILE,
)
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.archives import list_members, read_member, write_members
from dlperf_slurm.files.reading import ARRAY_LIMIT_BYTES, JSON_LIMIT_BYTES, open_file, read_bytes
from dlperf_slurm.files.writing import remove_file, write_file

DETAILS_FILE = "details.npz"
# arrays "HOST/DEVICE/COLUMN" of all samples; device -1 is the host
SAMPLES_FILE = "telemetry.npz"
# a smaller packed file is read in one piece, in half of the time
IN_MEMORY_BYTES = 2**20
# standard output and error of the launcher and its ranks
STREAM_FILES = ("out", "err")

_FOLDED = (
    STEP_SECONDS_FILE,
    WARMUP_STEP_SECONDS_FILE,
    DATA_WAIT_SECONDS_FILE,
    TOKEN_SECONDS_FILE,
    SAMPLES_FILE,
    HOST_NOISE_FILE,
    PEAKS_FILE,
)


class SidecarFile(NamedTuple):
    """The content of a file that accompanies a record, and its path for error messages."""

    content: bytes
    where: str


def pack_sidecars(folder: Path, case: Case) -> None:
    """Pack the files beside a successful attempt's record into `details.npz`, and remove them.

    Empty output files are removed too, and the case file if it equals `case`, the record's case. If
    the packed file cannot be written, all files stay. Raises OSError if a file cannot be removed.
    """
    try:
        contents = dict(_read_loose(folder))
        folded = _read_folded(folder, dict.fromkeys(contents, ARRAY_LIMIT_BYTES), folder)
        if folded is not None:
            # a crash while packing: files that are already packed only need to be removed
            contents = {
                name: content
                for name, content in contents.items()
                if name in folded and folded[name].content == content
            }
        elif contents:
            buffer = io.BytesIO()
            write_members(buffer, contents.items())
            # synced to disk before the packed files are removed
            write_file(folder / DETAILS_FILE, buffer.getbuffer(), is_synced=True)
    except FileProblem:
        return
    for name in contents:
        remove_file(folder / name)
    with suppress(OSError):
        # the folder may contain other files
        (folder / NODES_DIR).rmdir()
    for path in (folder / name for name in STREAM_FILES):
        with suppress(FileNotFoundError):
            if path.stat().st_size == 0:
                remove_file(path)
    with suppress(FileProblem, FileNotFoundError):
        if read_json(folder / CASE_FILE, Case) == case:
            remove_file(folder / CASE_FILE)


def read_details(folder: Path, limits: Mapping[str, int], root: Path) -> Dict[str, SidecarFile]:
    """Read the files beside a record by name, packed in `details.npz` or not.

    `limits` has the maximum size in bytes of each file to read, by name; missing files are left
    out. Raises FileProblem for unreadable files; below `root`, no link is followed.
    """
    folded = _read_folded(folder, limits, root)
    if folded is not None:
        return folded
    found = {}
    for name, limit in limits.items():
        with suppress(FileNotFoundError):
            found[name] = SidecarFile(read_bytes(folder / name, limit, root), str(folder / name))
    if len(found) < len(limits):
        # missing files may just have been packed
        folded = _read_folded(folder, limits, root)
    return found if folded is None else folded


def _read_folded(
    folder: Path, limits: Mapping[str, int], root: Path
) -> Optional[Dict[str, SidecarFile]]:
    """Read the files beside a record from `details.npz`; None if that does not exist."""
    path = folder / DETAILS_FILE
    found = {}
    try:
        with open_file(path, root) as opened:
            file = opened
            if opened.seek(0, os.SEEK_END) <= IN_MEMORY_BYTES:
                opened.seek(0)
                file = io.BytesIO(opened.read())
            members = list_members(file, str(path))
            for name in limits.keys() & members.keys():
                where = f"{path}/{name}"
                content = read_member(file, members[name], limits[name], where)
                found[name] = SidecarFile(content, where)
    except FileNotFoundError:
        return None
    return found


def _read_loose(folder: Path) -> Iterator[Tuple[str, bytes]]:
    """Yield name and content of each file beside a record that is to be packed."""
    for name in _FOLDED:
        with suppress(FileNotFoundError):
            yield name, read_bytes(folder / name, ARRAY_LIMIT_BYTES)
    for path in sorted((folder / NODES_DIR).glob("*.json")):
        yield f"{NODES_DIR}/{path.name}", read_bytes(path, JSON_LIMIT_BYTES)
