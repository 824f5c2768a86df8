"""A data set -> its complete copy on this node, with the copy's size and time.

Several jobs on a node may need the same copy: a lock makes all but one wait.
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
from dlperf_slurm.worker.nodes.commands import MAX_REASON_CHARACTERS

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))", re.ASCII)
# "-rw-r--r-- ada/users 1234 2026-01-01 00:00 train/0.jpg", from `tar -xvv`
_ARCHIVED_FILE = re.compile(rb"-\S+ \S+ +(\d+) ")


class CopyError(Exception):
    """A failed copy of a data set to this node; the message says why."""


class FolderSize(NamedTuple):
    """The number of files and bytes of a folder, by which copies are compared."""

    files: int
    size_bytes: int


def copy_dataset(source: str, target: str, environ: Mapping[str, str]) -> NodeCopy:
    """Copy a folder, or unpack a tar archive, to a folder of this node, unless that exists.

    `target` may have variables of `environ` (`expand`). Returns path, size and seconds. An existing
    target is complete, since copies are renamed at the end. Raises CopyError if the copy fails, if
    an existing target belongs to another user, or if it differs in size from a source folder (it is
    not compared with an archive).
    """
    started = time.monotonic()
    path = Path(expand(target, environ))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with hold_lock(path):
            was_there = path.exists()
            if was_there:
                check_owner(path.stat(), path)
            size = measure(path) if was_there else make_copy(Path(source), path)
            if was_there and not Path(source).is_file() and size != measure(Path(source)):
                raise CopyError(
                    f"{path} already exists and is not a copy of {source}: it has {size.files} "
                    f"files of {size.size_bytes} bytes; remove it"
                )
    except OSError as error:
        raise CopyError(f"could not copy data {source} to {path}: {error}") from error
    seconds = time.monotonic() - started
    return NodeCopy(source, str(path), size.files, size.size_bytes, seconds, was_there)


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Replace `$NAME` and `${NAME}` by their values; raises CopyError if one is unset or empty.

    With an empty value, "$TMPDIR/data" would become "/data".
    """

    def find(match: "re.Match[str]") -> str:
        name = match[1] or match[2]
        if not environ.get(name):
            raise CopyError(f"stage_to {text!r}: {name} is not set on this node")
        return environ[name]

    return _VARIABLE.sub(find, text)


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Lock a path against other processes of this node; waits for the lock.

    Raises CopyError for a lock file of another user, who could hold it forever, and OSError.
    """
    descriptor = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        check_owner(os.fstat(descriptor), Path(f"{path}.lock"))
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def check_owner(status: os.stat_result, path: Path) -> None:
    """Raise CopyError if the path, of this `status`, belongs to neither this user nor root."""
    if status.st_uid not in (0, os.geteuid()):
        raise CopyError(
            f"{path} belongs to another user (uid {status.st_uid}); add $USER to stage_to"
        )


def make_copy(source: Path, path: Path) -> FolderSize:
    """Copy a folder, or unpack a tar archive, to `path`; return the number of files and bytes.

    A temporary folder is filled, compared in size and renamed. Raises CopyError and OSError.
    """
    partial = path.with_name(f"{path.name}.partial")
    # left by a killed process: no other one can be at work, since the lock is held
    shutil.rmtree(str(partial), ignore_errors=True)
    try:
        if source.is_file():
            partial.mkdir()
            expected = unpack(source, partial)
        else:
            expected = measure(source)
            # -L, since the targets of links may not exist on this node
            run(["cp", "-rL", "--", str(source), str(partial)])
        found = measure(partial)
        if found != expected:
            raise CopyError(
                f"the copy of {source} has {found.files} files of {found.size_bytes} bytes; "
                f"expected: {expected.files} files of {expected.size_bytes}"
            )
        partial.rename(path)
    except BaseException:
        shutil.rmtree(str(partial), ignore_errors=True)
        raise
    return expected


def unpack(archive: Path, folder: Path) -> FolderSize:
    """Unpack a tar archive to a folder; return count and bytes of its files from tar's listing."""
    with tempfile.TemporaryFile() as listing:
        run(["tar", "-xvvf", str(archive), "-C", str(folder), "--no-same-owner"], listing.fileno())
        listing.seek(0)
        sizes = [int(found[1]) for found in map(_ARCHIVED_FILE.match, listing) if found]
    return FolderSize(len(sizes), sum(sizes))


def run(words: "list[str]", stdout: int = subprocess.DEVNULL) -> None:
    """Run a command; raises CopyError with the last line of its errors if it fails."""
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, check=False
    )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[-1][:MAX_REASON_CHARACTERS] if lines else ""
        raise CopyError(f"{words[0]} failed with exit code {done.returncode}: {reason}")


def measure(folder: Path) -> FolderSize:
    """Count the files below a folder and their bytes, following links.

    Raises OSError if a folder cannot be read.
    """
    files = size_bytes = 0

    def refuse(error: OSError) -> None:
        raise error

    for parent, _, names in os.walk(str(folder), onerror=refuse, followlinks=True):
        for name in names:
            size_bytes += os.stat(os.path.join(parent, name)).st_size
            files += 1
    return FolderSize(files, size_bytes)


def read_on_node(case: Case, attempt_dir: Path) -> Case:
    """Return the case with the folder of this node's copy of its data, if there is a copy.

    If no report matches this host's name (a container may have its own), the folder that is the
    same on all nodes is used; raises FileNotFoundError if the nodes differ, and FileProblem for
    an invalid report.
    """
    # a batch-size search runs its ranks in folders below the attempt's
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
        raise FileNotFoundError(
            f"the preparation of the nodes (stage_to) reported no copy of {case.data_dir} for "
            f"this node, {socket.gethostname()}"
        )
    return replace(case, data_dir=paths.pop())
