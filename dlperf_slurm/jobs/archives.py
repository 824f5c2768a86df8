"""A run that has ended <-> its archive: one file, from which the run is read as from its folder."""

import hashlib
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from dlperf_slurm.errors import InputError
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.archives import (
    ARCHIVE_SUFFIX,
    FILE_LIMIT_BYTES,
    LINKS_FILE,
    SUMS_FILE,
    find_archive,
    has_file,
    make_entry,
)
from dlperf_slurm.files.reading import read_bytes
from dlperf_slurm.jobs.journal import LOCK_FILE, RESERVE_FILE, hold_submit_lock
from dlperf_slurm.jobs.leftovers import PARTIAL_SUFFIX
from dlperf_slurm.jobs.manifest import MANIFEST_FILE
from dlperf_slurm.jobs.private_values import PRIVATE_FILE
from dlperf_slurm.jobs.run_directory import Run, find_run, list_run_ids, open_run

# what is of no use once nothing runs, and what nobody else may read
LEFT_OUT = frozenset((LOCK_FILE, RESERVE_FILE, PRIVATE_FILE))


@dataclass(frozen=True)
class Archived:
    """What was written: the file, and how many files of how many bytes are in it."""

    path: Path
    files: int
    content_bytes: int
    size_bytes: int


def find_readable_run(reference: Optional[str], results_dir: Path) -> Run:
    """What `find_run` finds, or the archive that a path or an id names, and raises as it does.

    Where a run has both, its directory is taken.
    """
    if reference is not None and Path(reference).suffix == ARCHIVE_SUFFIX:
        path = Path(reference)
        return open_run(path if path.exists() else results_dir / path)
    known = list_run_ids(results_dir)
    archives = {path.stem: path for path in results_dir.glob(f"[!.]*{ARCHIVE_SUFFIX}")}
    closed = sorted(archives.keys() - set(known))
    if reference is None:
        newest = next((run_id for run_id in reversed(closed) if _is_run(archives[run_id])), "")
        if newest > max(known, default=""):
            return open_run(archives[newest])
    elif not (Path(reference) / MANIFEST_FILE).is_file():
        matching = [run_id for run_id in closed if run_id.startswith(reference)]
        if len(matching) == 1 and not any(run_id.startswith(reference) for run_id in known):
            return open_run(archives[matching[0]])
    return find_run(reference, results_dir)


def _is_run(path: Path) -> bool:
    with suppress(FileProblem):
        return find_archive(path) is not None and has_file(path / MANIFEST_FILE, path)
    return False


def write_archive(run: Run, output: Path, is_removed: bool = False) -> Archived:
    """Close a run that has ended into a file, and verify it; its folder stays, unless `is_removed`.

    The folder is removed last, after every byte of the archive was read again and found right.
    Raises InputError for a file that is there already, or a folder that has what no archive can
    have or that changed meanwhile; FileProblem for what cannot be read or written, SchedulerError
    where another process submits or retries the run. In each case the folder is whole.
    """
    if output.suffix != ARCHIVE_SUFFIX:
        raise InputError(f"--output: {output}: an archive is called *{ARCHIVE_SUFFIX}")
    if output.exists():
        raise InputError(f"{output}: is there already; name another one with --output")
    partial = output.with_name(f".{output.stem}-{os.urandom(4).hex()}{ARCHIVE_SUFFIX}")
    with hold_submit_lock(run.path):
        before = dict(_list_files(run.path))
        try:
            sums = _write(run, before, partial)
            _verify(run, partial, sums)
            if dict(_list_files(run.path)) != before:
                raise InputError(f"{run.path}: changed while it was read; is something at work?")
            partial.rename(output)
        except OSError as error:
            if isinstance(error, FileProblem):
                raise
            raise FileProblem(f"{output}: cannot be written: {error.strerror}") from error
        finally:
            partial.unlink(missing_ok=True)
        if is_removed:
            remove_run(run)
    content_bytes = sum(status[0] for status in before.values())
    return Archived(output, len(before), content_bytes, output.stat().st_size)


def remove_run(run: Run) -> None:
    """Remove a run's folder, which is no run any more from the first moment on."""
    hidden = run.path.with_name(f".{run.path.name}{PARTIAL_SUFFIX}")
    run.path.rename(hidden)
    shutil.rmtree(hidden)


def _list_files(folder: Path) -> Iterator[tuple[str, tuple[int, int, str]]]:
    """Size, time and, of a link, where it leads, of all that is archived, by path in the folder."""
    for above, folders, names in os.walk(folder, onerror=_refuse):
        folders.sort()
        for name in sorted([*names, *(x for x in folders if Path(above, x).is_symlink())]):
            path = Path(above, name)
            relative = path.relative_to(folder).as_posix()
            status = path.lstat()
            if relative in LEFT_OUT:
                continue
            if stat.S_ISLNK(status.st_mode):
                yield relative, (0, 0, str(path.readlink()))
            elif stat.S_ISREG(status.st_mode):
                yield relative, (status.st_size, status.st_mtime_ns, "")
            else:
                raise InputError(f"{path}: is no file, which no archive can have; remove it")


def _refuse(error: OSError) -> None:
    raise FileProblem(f"{error.filename}: cannot be read: {error.strerror}") from error


def _write(run: Run, files: Mapping[str, tuple[int, int, str]], partial: Path) -> dict[str, str]:
    """Write all files, links and digests, to the disk; returns the digests by path."""
    links = {name: link for name, (_, _, link) in files.items() if link}
    sums: dict[str, str] = {}
    with partial.open("xb") as file:
        # for whom the folder is
        os.fchmod(file.fileno(), run.path.stat().st_mode & 0o666)
        with zipfile.ZipFile(file, "w") as archive:
            for name in [name for name in files if name not in links]:
                content = read_bytes(run.path / name, FILE_LIMIT_BYTES, run.path)
                sums[name] = hashlib.sha256(content).hexdigest()
                archive.writestr(make_entry(f"{run.run_id}/{name}"), content)
            text = json.dumps(links, indent=1, sort_keys=True) + "\n"
            sums[LINKS_FILE] = hashlib.sha256(text.encode()).hexdigest()
            archive.writestr(make_entry(f"{run.run_id}/{LINKS_FILE}"), text)
            lines = "".join(f"{digest}  {name}\n" for name, digest in sums.items())
            archive.writestr(make_entry(f"{run.run_id}/{SUMS_FILE}"), lines)
        file.flush()
        os.fsync(file.fileno())
    return sums


def _verify(run: Run, partial: Path, sums: Mapping[str, str]) -> None:
    """Read every file of an archive as whoever opens it does; FileProblem where one differs."""
    archive = find_archive(partial)
    if archive is None or archive.members.keys() != {*sums, SUMS_FILE}:
        raise FileProblem(f"{partial}: has not the files of {run.path}")
    for name, digest in sums.items():
        content = read_bytes(partial / name, FILE_LIMIT_BYTES, partial)
        if hashlib.sha256(content).hexdigest() != digest:
            raise FileProblem(f"{partial}: {name} is not what {run.path} has")
