"""A finished run directory <-> its archive, a single zip file that can be read in its place."""

import hashlib
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Optional

from dlperf_slurm.errors import InputError
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.archive_lookup import (
    ARCHIVE_SUFFIX,
    FILE_LIMIT_BYTES,
    find_archive,
    has_file,
)
from dlperf_slurm.files.archives import LINKS_FILE, SUMS_FILE, make_entry
from dlperf_slurm.files.reading import read_bytes
from dlperf_slurm.jobs.journal import LOCK_FILE, RESERVE_FILE, hold_submit_lock
from dlperf_slurm.jobs.manifest import MANIFEST_FILE
from dlperf_slurm.jobs.partial_runs import PARTIAL_SUFFIX
from dlperf_slurm.jobs.run_directory import (
    PRIVATE_FILE,
    Run,
    choose_run_id,
    is_run_dir,
    list_run_ids,
    open_run,
)

# files of a running submission, and private values, which an archive must not contain
LEFT_OUT = frozenset((LOCK_FILE, RESERVE_FILE, PRIVATE_FILE))


def find_readable_run(reference: Optional[str], results_dir: Path) -> Run:
    """Find a run by id, a beginning of an id, or path, also if only its archive exists.

    As `find_run`, None being the latest; a run directory goes before the archive of the same run.
    """
    if reference is not None and Path(reference).suffix == ARCHIVE_SUFFIX:
        path = Path(reference)
        return open_run(path if path.exists() else results_dir / path)
    if reference is not None and is_run_dir(Path(reference)):
        return open_run(Path(reference))
    runs = list_readable_runs(results_dir, reference)
    return open_run(runs[choose_run_id(reference, [*runs], results_dir)])


def list_readable_runs(results_dir: Path, named: Optional[str] = None) -> dict[str, Path]:
    """Return the run directories and archives of a results folder by run id, oldest first.

    Broken archives are left out, unless their names begin with `named`, the user's choice.
    """
    archives = results_dir.glob(f"[!.]*{ARCHIVE_SUFFIX}")
    runs = {
        path.stem: path
        for path in archives
        if path.name.isprintable() and (_is_run(path) or (named and path.stem.startswith(named)))
    }
    runs.update((run_id, results_dir / run_id) for run_id in list_run_ids(results_dir))
    return dict(sorted(runs.items()))


def _is_run(path: Path) -> bool:
    """Return whether a path is a valid archive with the manifest of a run."""
    with suppress(FileProblem):
        return find_archive(path) is not None and has_file(path / MANIFEST_FILE, path)
    return False


def write_archive(run: Run, output: Path, is_removed: bool) -> tuple[int, int]:
    """Pack a finished run into an archive and verify it; with `is_removed`, delete the folder.

    Returns the number of files and their bytes. The folder is deleted last, after the archive has
    been read back and its digests compared. The file of private values is left out. Raises
    InputError if `output` exists or does not end with .zip, or if the folder changed meanwhile or
    contains a device, pipe or socket; FileProblem for I/O errors; SchedulerError if another process
    submits or retries the run. In all these cases the folder stays intact.
    """
    if output.suffix != ARCHIVE_SUFFIX:
        raise InputError(f"--output: {output}: the file name must end with {ARCHIVE_SUFFIX}")
    if output.exists():
        raise InputError(f"{output}: already exists; choose another path with --output")
    partial = output.with_name(f".{output.stem}-{os.urandom(4).hex()}{ARCHIVE_SUFFIX}")
    with hold_submit_lock(run.path):
        before = dict(_list_files(run.path))
        try:
            sums = _write(run, before, partial)
            _verify(run, partial, sums)
            if dict(_list_files(run.path)) != before:
                raise InputError(
                    f"{run.path}: changed while it was being archived; wait until no other "
                    "command works on this run"
                )
            partial.rename(output)
        except OSError as error:
            if isinstance(error, FileProblem):
                raise
            raise FileProblem(f"{output}: cannot be written: {error.strerror}") from error
        finally:
            partial.unlink(missing_ok=True)
        if is_removed:
            # renamed first, so that no half-deleted run is ever visible
            hidden = run.path.with_name(f".{run.path.name}{PARTIAL_SUFFIX}")
            run.path.rename(hidden)
            shutil.rmtree(hidden)
    return len(before), sum(status[0] for status in before.values())


def _list_files(folder: Path) -> Iterator[tuple[str, tuple[int, int, str]]]:
    """Yield relative path and (size, mtime in ns, link target or "") of each file to archive."""
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
                raise InputError(
                    f"{path}: is not a regular file or folder, so it cannot be archived; remove it"
                )


def _refuse(error: OSError) -> None:
    raise FileProblem(f"{error.filename}: cannot be read: {error.strerror}") from error


def _write(run: Run, files: Mapping[str, tuple[int, int, str]], partial: Path) -> dict[str, str]:
    """Write a run's files, links and digests to an archive, synced; return the digests by path."""
    links = {name: link for name, (_, _, link) in files.items() if link}
    sums: dict[str, str] = {}
    with partial.open("xb") as file:
        # the archive is as readable for others as the folder
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
    """Read every file of an archive as reports do; raise FileProblem if a digest differs."""
    archive = find_archive(partial)
    if archive is None or archive.members.keys() != {*sums, SUMS_FILE}:
        raise FileProblem(
            f"{partial}: does not have the same files as {run.path}: the disk may be faulty; give "
            "another path with --output"
        )
    for name, digest in sums.items():
        content = read_bytes(partial / name, FILE_LIMIT_BYTES, partial)
        if hashlib.sha256(content).hexdigest() != digest:
            raise FileProblem(
                f"{partial}: {name} differs from the file in {run.path}: the disk may be faulty; "
                "give another path with --output"
            )
