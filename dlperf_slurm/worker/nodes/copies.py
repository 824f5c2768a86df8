"""A data set -> its copy on this node, whole or not there, with its size and the time it took.

Several jobs on a node may want the same copy: one makes it, the others wait for that one.
"""

import fcntl
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Iterator, Mapping, NamedTuple

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.nodes import NODES_DIR, NodeCopy, read_node_reports

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))", re.ASCII)
# "-rw-r--r-- ada/users 1234 2026-01-01 00:00 train/0.jpg", as tar lists a file that it unpacks
_ARCHIVED_FILE = re.compile(rb"-\S+ \S+ +(\d+) ")
MAX_REASON_CHARACTERS = 200


class CopyError(Exception):
    """A data set that could not be copied to this node; the message says why."""


class Size(NamedTuple):
    """What a copy is compared by: the number of files, and the bytes in them."""

    files: int
    size_bytes: int


def copy_dataset(source: str, target: str, environ: Mapping[str, str]) -> NodeCopy:
    """Copy a folder, or unpack a tar archive, to a folder of this node, unless that is there.

    What is there under its name is whole. Raises CopyError where that is not what the source is,
    and where it cannot be copied.
    """
    started = time.monotonic()
    path = Path(expand(target, environ))
    what = f"data {source} could not be copied to {path}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(path):
            was_there = path.exists()
            size = measure(path) if was_there else make_copy(Path(source), path)
            if was_there and not is_archive(Path(source)) and size != measure(Path(source)):
                raise CopyError(
                    f"{path} is there, and is not {source}: it has {size.files} files of "
                    f"{size.size_bytes} bytes; remove it"
                )
    except OSError as error:
        raise CopyError(f"{what}: {error}") from error
    seconds = time.monotonic() - started
    return NodeCopy(source, str(path), size.files, size.size_bytes, seconds, was_there)


def expand(text: str, environ: Mapping[str, str]) -> str:
    """The text with `$NAME` and `${NAME}` as they are here; raises CopyError where one is not set.

    An empty one would put below the root what should be below a job's own folder.
    """

    def find(match: "re.Match[str]") -> str:
        name = match[1] or match[2]
        if not environ.get(name):
            raise CopyError(f"stage_to {text!r}: {name} is not set on this node")
        return environ[name]

    return _VARIABLE.sub(find, text)


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Wait until no other process of this node works on that path; raises OSError."""
    descriptor = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def make_copy(source: Path, path: Path) -> Size:
    """Copy beside the path, compare, and rename; raises CopyError, and leaves nothing then."""
    partial = path.with_name(f"{path.name}.partial")
    # of one that was killed: the lock is held here
    shutil.rmtree(str(partial), ignore_errors=True)
    try:
        if is_archive(source):
            partial.mkdir()
            expected = unpack(source, partial)
        else:
            expected = measure(source)
            # links lead to where nodes may not see it
            run(["cp", "-rL", "--", str(source), str(partial)])
        found = measure(partial)
        if found != expected:
            raise CopyError(
                f"the copy of {source} has {found.files} files of {found.size_bytes} bytes, "
                f"not {expected.files} of {expected.size_bytes}"
            )
        partial.rename(path)
    except BaseException:
        shutil.rmtree(str(partial), ignore_errors=True)
        raise
    return expected


def is_archive(source: Path) -> bool:
    return source.is_file()


def unpack(archive: Path, folder: Path) -> Size:
    """Unpack a tar archive; the size of what it says that it holds."""
    with tempfile.TemporaryFile() as listing:
        run(["tar", "-xvvf", str(archive), "-C", str(folder), "--no-same-owner"], listing.fileno())
        listing.seek(0)
        sizes = [int(found[1]) for found in map(_ARCHIVED_FILE.match, listing) if found]
    return Size(len(sizes), sum(sizes))


def run(words: "list[str]", stdout: int = subprocess.DEVNULL) -> None:
    """Run a command to its end; raises CopyError with its last words where it fails."""
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, check=False
    )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[-1][:MAX_REASON_CHARACTERS] if lines else ""
        raise CopyError(f"{words[0]} failed with exit code {done.returncode}: {reason}")


def measure(folder: Path) -> Size:
    """The files below a folder and their bytes, as links lead to them; raises OSError for none."""
    files = size_bytes = 0

    def refuse(error: OSError) -> None:
        raise error

    for parent, _, names in os.walk(str(folder), onerror=refuse, followlinks=True):
        for name in names:
            size_bytes += os.stat(os.path.join(parent, name)).st_size
            files += 1
    return Size(files, size_bytes)


def read_on_node(case: Case, attempt_dir: Path) -> Case:
    """The case with the folder of this node's copy of its data, if there is one.

    A container may have a name of its own: there the folder is that of all nodes, where they agree.
    Raises FileNotFoundError where they do not, and ContractError for a report that cannot be used.
    """
    # a search starts its ranks in folders below that of the start
    folders = [attempt_dir, *list(attempt_dir.parents)[:2]]
    start = next((folder for folder in folders if (folder / NODES_DIR).is_dir()), None)
    if not case.data_dir or start is None:
        return case
    own = {os.environ.get("SLURMD_NODENAME", ""), socket.gethostname()}
    reports = read_node_reports(start)
    here = [one for one in reports if own & {one.node, one.host}] or reports
    paths = {c.path for one in here for c in one.copies if c.source == case.data_dir}
    if not paths:
        return case
    if len(paths) > 1:
        raise FileNotFoundError(f"no copy of {case.data_dir} is of {socket.gethostname()}")
    return replace(case, data_dir=paths.pop())
