"""A results folder -> the entries of all its runs; of each run a summary is kept in a cache.

A summary has the entries of a run, and the names of all files and folders that they were read from.
It is valid while none of these has another size or time, and no folder another content.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlperf_slurm.config.folders import hash_path
from dlperf_slurm.errors import InputError
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.archive_lookup import ARCHIVE_SUFFIX, has_file
from dlperf_slurm.jobs.journal import JOURNAL_FILE
from dlperf_slurm.jobs.manifest import MANIFEST_FILE
from dlperf_slurm.jobs.run_directory import SCRIPTS_DIR
from dlperf_slurm.jobs.run_files import FileState, find_files, have_changed
from dlperf_slurm.results.cache import evict_entries, fingerprint_code, load_entry, store_entry
from dlperf_slurm.results.columns import COUNT, LISTS, TEXT, make_frame_of_values
from dlperf_slurm.results.labels import IDENTITY

if TYPE_CHECKING:
    from pandas import DataFrame

# the folder of the cache, and the most runs in it
SUMMARIES = "summaries"
MOST_RUNS = 10_000
# The columns of the data frame of entries: one row per case of a run, as planned. `state` is the
# reason for a missing result (failed, OOM, invalid, missing), `problem` the problems of repeats.
# Without a valid record these are empty: `parameters` (sizes of the model), `work` and
# `provenance` (see `list_work`, `list_provenance`), and `versions` (software versions).
# `node_contests`: see `group_comparable_nodes`; `node_sound`: time of each node's last valid
# repeat; `node_failures`: node, time and reason of each node failure.
ENTRIES: dict[str, str] = {
    "run_dir": TEXT,
    "run_id": TEXT,
    "created_at": TEXT,
    "site_name": TEXT,
    "tool": TEXT,
    **IDENTITY,
    "planned_repeats": COUNT,
    "samples_per_s": LISTS,
    "state": TEXT,
    "problem": TEXT,
    "parameters": TEXT,
    "work": TEXT,
    "provenance": TEXT,
    "versions": TEXT,
    "node_contests": TEXT,
    "node_sound": TEXT,
    "node_failures": TEXT,
}
# the columns with JSON
FACTS = tuple(ENTRIES)[tuple(ENTRIES).index("work") :]
# reads a value of FACTS; cached, because runs have many in common: callers must not modify it
read_facts: Callable[[str], Any] = lru_cache(maxsize=None)(json.loads)
# the values of an entry, in the order of ENTRIES
EntryRow = tuple[Any, ...]

# other contents of a run directory: if any exists without a manifest, the run is incomplete
_SIGNS = (JOURNAL_FILE, SCRIPTS_DIR, "cases")


@dataclass(frozen=True)
class RunCache:
    """All entries of a results folder, and one line per problem.

    `rows` have the values of ENTRIES. `read_runs` is the number of runs that were read from their
    files, because they are new or have changed since their summary was stored.
    """

    rows: list[EntryRow] = field(repr=False)
    problems: tuple[str, ...]
    run_count: int
    read_runs: int

    @property
    def entries(self) -> "DataFrame":
        """The rows, one for each case of each run, as a new data frame with the columns ENTRIES.

        Imports pandas, unlike `list_entries`.
        """
        return make_frame_of_values(ENTRIES, self.rows)

    def list_entries(self) -> list[dict[str, Any]]:
        """Return the rows as dicts by the names of ENTRIES; pandas is not imported."""
        return [dict(zip(ENTRIES, row)) for row in self.rows]


def read_run_cache(results_dir: Path) -> RunCache:
    """Read the history entries of a results folder, cached if valid; InputError if unreadable.

    If a summary cannot be stored, a problem says so, and the next call reads the run again.
    """
    runs, problems = list_runs(results_dir)
    rows: list[EntryRow] = []
    run_count = read_runs = 0
    for run_dir in runs:
        kept = load_entry(SUMMARIES, hash_path(run_dir), fingerprint_code())
        own = None if kept is None or have_changed(run_dir, kept[0]) else kept[1]
        if own is None:
            try:
                own = _read(run_dir, problems)
            except InputError as error:
                problems.append(str(error))
                continue
            read_runs += 1
        run_count += 1
        # the name of the folder may differ
        rows += [(str(run_dir), *row[1:]) for row in own]
    if read_runs:
        evict_entries(SUMMARIES, MOST_RUNS)
    return RunCache(rows, tuple(dict.fromkeys(problems)), run_count, read_runs)


def list_runs(results_dir: Path) -> tuple[list[Path], list[str]]:
    """Return the runs (directories or archives) of a results folder by name, and problems.

    Problems are lines on runs that are left out. Other files and folders are ignored. A run with a
    second name (a symbolic link) counts once. Raises InputError if the folder cannot be read.
    """
    runs: dict[Path, Path] = {}
    problems = []
    try:
        paths = sorted(path for path in results_dir.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise InputError(f"{results_dir}: cannot be read: {error.strerror}") from error
    for path in paths:
        if not path.name.isprintable():
            problems.append(
                f"{results_dir}/{path.name!a}: left out, as its name has characters that cannot "
                "be printed"
            )
            continue
        try:
            if (path / MANIFEST_FILE).is_file() or _is_archive(path, paths):
                runs.setdefault(path.resolve(), path)
            elif any((path / name).exists() for name in _SIGNS):
                problems.append(
                    f"{path}: left out, as the run is incomplete: it has no {MANIFEST_FILE}"
                )
        except FileProblem as error:
            problems.append(str(error))
        except OSError as error:
            problems.append(f"{path}: cannot be read: {error.strerror}")
    return [*runs.values()], problems


def _is_archive(path: Path, paths: Sequence[Path]) -> bool:
    """Return whether a path is the archive of a run whose directory is not among `paths` too."""
    if path.suffix != ARCHIVE_SUFFIX or path.with_suffix("") in paths:
        return False
    return path.is_file() and has_file(path / MANIFEST_FILE, path)


def _read(run_dir: Path, problems: list[str]) -> list[EntryRow]:
    """Read the entries of a run, and store its summary; raises InputError if it cannot be read.

    If the summary cannot be stored, a line is added to `problems`.
    """
    # imports what reads records
    from dlperf_slurm.results.history.entries import read_entries

    found = find_files(run_dir)
    rows = read_entries(run_dir)
    problem = store_summary(run_dir, found, rows)
    if problem:
        problems.append(
            f"summaries of runs cannot be stored, so each call reads all runs again: {problem}"
        )
    return rows


def store_summary(run_dir: Path, found: list[FileState], rows: Sequence[EntryRow]) -> str:
    """Store the entries of a run in the cache; return "", or an error message.

    `found` is what `find_files` returned before the entries were read.
    """
    return store_entry(SUMMARIES, hash_path(run_dir), fingerprint_code(), (found, [*rows]))
