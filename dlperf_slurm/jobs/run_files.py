"""A run directory -> the files that results are read from, and whether they have changed."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dlperf_slurm.contract.step_archive import STREAM_FILES
from dlperf_slurm.files.archive_lookup import ARCHIVE_SUFFIX
from dlperf_slurm.jobs.journal import JOURNAL_FILE
from dlperf_slurm.jobs.manifest import MANIFEST_FILE
from dlperf_slurm.jobs.markers import MARKERS_DIR
from dlperf_slurm.jobs.run_directory import CASES_FILE, MATRIX_FILE, SCRIPTS_DIR

# markers are renamed into place, so the time of their folder changes with each
_FILES = (MANIFEST_FILE, MATRIX_FILE, JOURNAL_FILE, CASES_FILE, MARKERS_DIR)
_FOLDERS = (SCRIPTS_DIR, "cases")


# name in the run, size in bytes, modification time in ns, and inode, or -1 for each if missing; the
# time of a folder says if a file was added or removed
FileState = tuple[str, int, int, int]


def find_files(run_dir: Path) -> list[FileState]:
    """Return the states of the files and folders that results are read from; see `check_files`.

    An archive is one, named "". Call this first: files that change meanwhile are then read again.
    """
    is_archive = run_dir.suffix == ARCHIVE_SUFFIX and run_dir.is_file()
    below = (name for folder in _FOLDERS for name in list_tree(run_dir, folder))
    return check_files(run_dir, [""] if is_archive else [*_FILES, *below])


def have_changed(run_dir: Path, states: Sequence[FileState]) -> bool:
    """Return whether any of these files and folders of a run has changed (see `check_files`)."""
    return check_files(run_dir, (name for name, *_ in states)) != [*states]


def list_tree(run_dir: Path, folder: str) -> Iterator[str]:
    """Yield paths relative to the run: a folder and all below it but job output; follow no link.

    Folders of folders alone are left out: in a run, only an array task that starts makes others in
    them, and it writes a marker too.
    """
    try:
        entries = sorted(os.scandir(f"{run_dir}/{folder}"), key=lambda entry: entry.name)
    except OSError:
        yield folder
        return
    folders = [entry.is_dir(follow_symlinks=False) for entry in entries]
    if not entries or not all(folders):
        yield folder
    for entry, is_folder in zip(entries, folders):
        if is_folder:
            yield from list_tree(run_dir, f"{folder}/{entry.name}")
        elif entry.name not in STREAM_FILES:
            yield f"{folder}/{entry.name}"


def check_files(run_dir: Path, names: Iterable[str]) -> list[FileState]:
    """Return (name, size, mtime in ns, inode) of these paths in a run; -1 if one is missing."""
    try:
        # relative to an open folder, which is faster: thousands of array tasks have five files each
        run = os.open(run_dir, os.O_RDONLY)
    except OSError:
        return [(name, -1, -1, -1) for name in names]
    states = []
    try:
        for name in names:
            try:
                # "" is the run itself, an archive
                status = os.stat(name, dir_fd=run, follow_symlinks=False) if name else os.fstat(run)
            except OSError:
                states.append((name, -1, -1, -1))
            else:
                states.append((name, status.st_size, status.st_mtime_ns, status.st_ino))
    finally:
        os.close(run)
    return states
