"""A results folder -> the entries of all its runs; of each run a summary is kept in a cache.

A summary has the entries of a run, and the names of all files and folders that they were read from.
It is valid while none of these has another size or time, and no folder another content.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.config.folders import hash_path
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.run_files import digest_files, look_at_files
from dlperf_slurm.results.cache import evict_entries, fingerprint_code, load_entry, store_entry
from dlperf_slurm.results.history.entries import (
    EntryRow,
    list_runs,
    make_entry_frame,
    read_entries,
)

if TYPE_CHECKING:
    from pandas import DataFrame

# the folder of the cache, and the most runs in it
SUMMARIES = "summaries"
MOST_RUNS = 10_000


@dataclass(frozen=True)
class RunCache:
    """All entries of a results folder, and one line per problem.

    `entries` has the columns ENTRIES. `read_runs` is the number of runs that were read from their
    files, because they are new or have changed since their summary was stored.
    """

    entries: "DataFrame" = field(compare=False, repr=False)
    problems: tuple[str, ...]
    run_count: int
    read_runs: int


def read_run_cache(results_dir: Path) -> RunCache:
    """Read the entries of a results folder; InputError if it cannot be read.

    If a summary cannot be stored, a problem says so, and the next call reads the run again.
    """
    folder = list_runs(results_dir)
    problems = [*folder.problems]
    rows: list[EntryRow] = []
    run_count = read_runs = 0
    for run_dir in folder.runs:
        own = _load(run_dir)
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
    return RunCache(make_entry_frame(rows), tuple(dict.fromkeys(problems)), run_count, read_runs)


def _load(run_dir: Path) -> Optional[list[EntryRow]]:
    """Load the entries of a run whose summary is valid, else None."""
    kept = load_entry(SUMMARIES, hash_path(run_dir), fingerprint_code())
    if kept is None:
        return None
    names, digest, rows = kept
    return rows if digest_files(run_dir, names) == digest else None


def _read(run_dir: Path, problems: list[str]) -> list[EntryRow]:
    """Read the entries of a run, and store its summary; raises InputError if it cannot be read."""
    found = look_at_files(run_dir)
    rows = read_entries(run_dir)
    problem = store_summary(run_dir, found, rows)
    if problem:
        problems.append(f"the next call reads all runs again, as no summary is kept: {problem}")
    return rows


def store_summary(run_dir: Path, found: tuple[list[str], str], rows: Sequence[EntryRow]) -> str:
    """Store the entries of a run, read after `look_at_files`; return "", or the error."""
    return store_entry(SUMMARIES, hash_path(run_dir), fingerprint_code(), (*found, [*rows]))
