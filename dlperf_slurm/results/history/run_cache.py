"""A results folder <-> its catalogue, a cache that avoids reading unchanged runs again.

The catalogue has the entries (results of one case of one run) of all runs in the folder. It is a
DuckDB file in the user's cache directory, so that no database is opened that came with somebody
else's results. It contains only data from the runs' files: it can be deleted at any time, and is
rebuilt if it cannot be read or is from another version.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlperf_slurm.config.folders import find_cache_dir, hash_path, make_cache_dir
from dlperf_slurm.errors import InputError
from dlperf_slurm.files.folders import PRIVATE_MASK, file_permissions
from dlperf_slurm.results.columns import COUNT, FLAG, LISTS, TEXT
from dlperf_slurm.results.comparability import REPORTED_SETTINGS, WORK
from dlperf_slurm.results.database import open_database
from dlperf_slurm.results.history.entries import (
    ENTRIES,
    EntryRow,
    digest_run,
    list_runs,
    make_entry_frame,
    read_entries,
)
from dlperf_slurm.version import __version__

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pandas import DataFrame

# DuckDB locks an open file; our processes keep it open only briefly
LOCK_PATIENCE_SECONDS = 10.0
_RETRY_SECONDS = 0.05

_KINDS = {TEXT: "VARCHAR", COUNT: "BIGINT", FLAG: "BOOLEAN", LISTS: "DOUBLE[]"}
# the columns of an entry except its run directory, which may move
_COLUMNS = tuple(ENTRIES)[1:]
_DEFINITIONS = tuple(f"{name} {_KINDS[ENTRIES[name]]}" for name in _COLUMNS)
# a catalogue with another layout is rebuilt
_LAYOUT = " ".join(("2", __version__, *_DEFINITIONS, *WORK, *REPORTED_SETTINGS))
_SCHEMA = f"""
CREATE TABLE layout (text VARCHAR);
CREATE TABLE runs (folder VARCHAR, digest VARCHAR);
CREATE TABLE entries (folder VARCHAR, {", ".join(_DEFINITIONS)});
"""


@dataclass(frozen=True)
class CachedRun:
    """The cached entries of a run, valid while `digest_run` of its directory returns `digest`."""

    digest: str
    entries: tuple[EntryRow, ...]


@dataclass(frozen=True)
class RunCache:
    """All entries of a results folder, and one line per problem.

    `entries` has the columns ENTRIES. `read_runs` is the number of runs that were read from their
    files, because they are new or have changed since the catalogue was stored.
    """

    entries: "DataFrame" = field(compare=False, repr=False)
    problems: tuple[str, ...]
    run_count: int
    read_runs: int


def get_cache_path(results_dir: Path) -> Path:
    """Return the path of a results folder's catalogue in the user's cache; it may not exist."""
    return find_cache_dir() / f"catalogue-{hash_path(results_dir)}.duckdb"


def read_catalogue(results_dir: Path) -> RunCache:
    """Update and return the catalogue of a results folder; InputError if it cannot be read.

    If the catalogue cannot be stored, a problem says so, and the next call reads the runs again.
    """
    folder = list_runs(results_dir)
    problems = [*folder.problems]
    stored = _load(results_dir, problems)
    runs: dict[str, CachedRun] = {}
    changed: dict[str, CachedRun] = {}
    for run_dir in folder.runs:
        digest = digest_run(run_dir)
        known = stored.get(run_dir.name)
        if known is not None and known.digest == digest:
            runs[run_dir.name] = known
            continue
        try:
            changed[run_dir.name] = CachedRun(digest, tuple(read_entries(run_dir)))
        except InputError as error:
            problems.append(str(error))
    gone = stored.keys() - runs.keys() - changed.keys()
    if changed or gone:
        _store(results_dir, changed, gone, problems)
    rows = [row for run in {**runs, **changed}.values() for row in run.entries]
    count = len(runs) + len(changed)
    return RunCache(make_entry_frame(rows), tuple(dict.fromkeys(problems)), count, len(changed))


def _load(results_dir: Path, problems: list[str]) -> dict[str, CachedRun]:
    """Load the catalogue: runs by directory name; empty if there is no usable one.

    Removes a broken catalogue and adds a line to `problems`.
    """
    import duckdb

    path = get_cache_path(results_dir)
    if not path.exists():
        return {}
    try:
        with _open(path, read_only=True) as connection:
            if _read_layout(connection) != _LAYOUT:
                return {}
            return _read_runs(connection, results_dir)
    except (duckdb.Error, ValueError) as error:
        if _is_lock_error(error):
            problems.append(
                f"{path}: another process is using the cache; the runs were read directly"
            )
        elif os.access(path, os.W_OK):
            _remove(path, problems)
        # a file without write permission belongs to another user: leave it
        return {}


def _store(
    results_dir: Path, changed: Mapping[str, CachedRun], gone: Iterable[str], problems: list[str]
) -> None:
    """Store changed runs, and delete the runs `gone`, whose directories no longer exist.

    In a single transaction. Rows that another process stored in the meantime are from the same
    files and are replaced. On an error, adds a line to `problems`.
    """
    import duckdb

    path = get_cache_path(results_dir)
    try:
        make_cache_dir()
        with file_permissions(PRIVATE_MASK), _open(path) as connection:
            connection.begin()
            if _read_layout(connection) != _LAYOUT:
                _make_tables(connection)
            for table in ("entries", "runs"):
                connection.execute(
                    f"DELETE FROM {table} WHERE list_contains(?::VARCHAR[], folder)",
                    [[*gone, *changed]],
                )
            insert_rows(
                connection, "runs", [(folder, run.digest) for folder, run in changed.items()]
            )
            insert_rows(
                connection,
                "entries",
                [(folder, *row[1:]) for folder, run in changed.items() for row in run.entries],
            )
            connection.commit()
    except (duckdb.Error, OSError) as error:
        first_line = str(error).splitlines()[0]
        problems.append(
            f"{path}: cannot be saved, so the next call reads all runs again: {first_line}"
        )


def insert_rows(
    connection: "DuckDBPyConnection", table: str, rows: Sequence[Sequence[Any]]
) -> None:
    """Insert rows in a single statement with a list per column, because `executemany` is slow."""
    if rows:
        types = [kind for _, kind, *_ in connection.execute(f"DESCRIBE {table}").fetchall()]
        columns = ", ".join(f"unnest(?::{kind}[])" for kind in types)
        connection.execute(f"INSERT INTO {table} SELECT {columns}", [*map(list, zip(*rows))])


@contextmanager
def _open(path: Path, read_only: bool = False) -> "Iterator[DuckDBPyConnection]":
    """Open a catalogue; retry for LOCK_PATIENCE_SECONDS while another process has the lock."""
    import duckdb

    deadline = time.monotonic() + LOCK_PATIENCE_SECONDS
    while True:
        try:
            connection = open_database(path, read_only)
            break
        except duckdb.IOException as error:
            if not _is_lock_error(error) or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)
    try:
        yield connection
    finally:
        connection.close()


def _is_lock_error(error: Exception) -> bool:
    """Return whether DuckDB could not open a file because another process has it open."""
    return "Could not set lock" in str(error)


def _remove(path: Path, problems: list[str]) -> None:
    """Remove a catalogue that is broken or from an incompatible DuckDB version."""
    try:
        path.unlink()
        path.with_name(f"{path.name}.wal").unlink(missing_ok=True)
    except OSError as error:
        problems.append(
            f"{path}: cannot be read as a cache of runs, and cannot be deleted: {error.strerror}"
        )
    else:
        problems.append(f"{path}: could not be read, and was rebuilt from the runs")


def _read_layout(connection: "DuckDBPyConnection") -> str:
    """Return the version and columns of a catalogue as text, as in _LAYOUT; '' for a new file."""
    tables = connection.execute("SELECT table_name FROM information_schema.tables").fetchall()
    if ("layout",) not in tables:
        return ""
    return "".join(text for (text,) in connection.execute("SELECT text FROM layout").fetchall())


def _make_tables(connection: "DuckDBPyConnection") -> None:
    """Create the empty tables of a catalogue, in place of those of another version."""
    for table in ("entries", "runs", "layout"):
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    connection.execute(_SCHEMA)
    connection.execute("INSERT INTO layout VALUES (?)", [_LAYOUT])


def _read_runs(connection: "DuckDBPyConnection", results_dir: Path) -> dict[str, CachedRun]:
    """Read the cached runs by directory name; paths of entries are below `results_dir`."""
    columns = ", ".join(_COLUMNS)
    # insertion order is that of the matrix
    rows = connection.execute(f"SELECT folder, {columns} FROM entries ORDER BY rowid").fetchall()
    entries: dict[str, list[EntryRow]] = {}
    for folder, *values in rows:
        entries.setdefault(folder, []).append((str(results_dir / folder), *values))
    digests = connection.execute("SELECT folder, digest FROM runs").fetchall()
    return {folder: CachedRun(digest, tuple(entries.get(folder, ()))) for folder, digest in digests}
