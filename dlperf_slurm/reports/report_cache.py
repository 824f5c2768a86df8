"""A run -> its results, from a cache; only cases that have changed are read again.

A case has changed if any file of its repeats has another size, time or inode than when the cache
was written.
"""

import hashlib
import pickle
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Optional

from dlperf_slurm.config.folders import hash_path
from dlperf_slurm.jobs.case_file import fingerprint_cases
from dlperf_slurm.jobs.manifest import PlannedCase
from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.jobs.run_files import FileState
from dlperf_slurm.results.cache import (
    decode,
    evict_entries,
    fingerprint_code,
    load_entry,
    store_entry,
)
from dlperf_slurm.results.case_summary import (
    CaseRows,
    RunFrames,
    join_run_frames,
    make_run_frames,
    summarize_case,
)
from dlperf_slurm.results.cases import Results, analyze_frames
from dlperf_slurm.results.collect import Attempts, CaseOutcomes
from dlperf_slurm.results.columns import REPEATED_TEXT, TIME, list_values, make_array
from dlperf_slurm.results.history.entries import (
    add_failures,
    check_entries,
    list_failures_by_case,
    make_entry,
)
from dlperf_slurm.results.history.entry_columns import EntryRow
from dlperf_slurm.results.history.run_cache import store_summary
from dlperf_slurm.results.samples import INDEX

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# the folder of the cache, and the most runs in it
FRAMES = "frames"
MOST_RUNS = 100
_DIGEST_BYTES = 32
_FRAMES = tuple(field.name for field in fields(RunFrames))


def read_results(attempts: Attempts, found: list[FileState]) -> Results:
    """Return the results of a run; cases unchanged since the last report are from the cache.

    Other cases are read, by several processes with at most one case in memory each. `found` is what
    `find_files` returned before the attempts were found.
    """
    run = attempts.run
    planned = run.manifest.cases
    shared = fingerprint_run(run)
    files = group_by_attempt(found)
    prints = {case.case_id: fingerprint_case(attempts, case, shared, files) for case in planned}
    kept = load_results(run)
    if kept is not None and kept.prints == prints:
        return kept.decode()
    known = {} if kept is None else kept.prints
    changed = [case for case in planned if known.get(case.case_id) != prints[case.case_id]]

    def summarize(outcomes: CaseOutcomes) -> tuple[CaseRows, EntryRow]:
        return summarize_case(outcomes), make_entry(run.path, run.manifest, outcomes)

    read = [*attempts.map_cases(summarize, changed)]
    frames = make_run_frames([rows for rows, _ in read])
    changed_entries = {case.case_id: entry for case, (_, entry) in zip(changed, read)}
    # the rows of many repeats take as much memory as the frames
    del read
    if kept is not None and len(changed) < len(planned):
        unchanged = prints.keys() - {case.case_id for case in changed}
        frames = join_run_frames(kept.decode_frames(), unchanged, frames, [*prints])
    results = analyze_frames(planned, frames)
    entries = {**({} if kept is None else kept.entries), **changed_entries}
    store_results(run, results, prints, entries)
    _store_summary(run, found, entries)
    return results


def _store_summary(run: Run, found: list[FileState], entries: Mapping[str, EntryRow]) -> None:
    """Store the summary of a run, from which `history` reads it without opening its records.

    `found` is the files as they were before they were read.
    """
    failures = list_failures_by_case(run)
    rows = [
        add_failures(entries[case.case_id], failures.get(case.case_id, []))
        for case in run.manifest.cases
        if not case.reason
    ]
    # history tells of a run that it cannot show
    with suppress(ValueError):
        check_entries(run.manifest, rows)
        store_summary(run.path, found, rows)


# fingerprints


def fingerprint_run(run: Run) -> tuple[object, ...]:
    """Return size, time and inode of the file that all cases share, or of a run's archive.

    An empty tuple if there is neither.
    """
    with suppress(FileNotFoundError):
        return fingerprint_cases(run.path)
    return ()


def group_by_attempt(found: Sequence[FileState]) -> dict[str, list[FileState]]:
    """Group the files of a run by the folder of their attempt, such as "cases/CASE_ID/r1/a1"."""
    groups: dict[str, list[FileState]] = {}
    for state in found:
        groups.setdefault("/".join(state[0].split("/", 4)[:4]), []).append(state)
    return groups


def fingerprint_case(
    attempts: Attempts,
    case: PlannedCase,
    shared: tuple[object, ...],
    files: Mapping[str, Sequence[FileState]],
) -> str:
    """Return a fingerprint of everything that a case's results depend on, without opening files.

    `shared` is the fingerprint of the run's shared files (`fingerprint_run`), `files` has the files
    of each attempt.
    """
    known = [
        (
            files.get(task.attempt_dir),
            task,
            attempts.states.get(task.marker),
            task.group_id in attempts.submitted,
        )
        for repeat in attempts.list_repeats(case)
        for task in attempts.tasks.get((case.case_id, repeat), ())
    ]
    text = ascii((shared, case, attempts.list_repeats(case), known))
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


# the cache file of a run


@dataclass(frozen=True)
class CachedResults:
    """The cached results of a run: data frames as bytes, and the fingerprint of each case.

    `prints` has the fingerprints by case id, `encoded` the frames by name (`encode_frame`),
    `entries` the entries of cases in the history by case id.
    """

    prints: Mapping[str, str]
    encoded: Mapping[str, bytes]
    entries: Mapping[str, EntryRow]

    def decode_frames(self) -> RunFrames:
        """Return the data frames of measurements, without those computed from them."""
        return RunFrames(**{name: decode_frame(self.encoded[name]) for name in _FRAMES})

    def decode(self) -> Results:
        """Return the results with all data frames."""
        samples, cases, notes = (
            decode_frame(self.encoded[name]) for name in ("samples", "cases", "all_notes")
        )
        return Results(
            self.decode_frames(),
            samples.set_index(INDEX).value.rename(None),
            cases.set_index("case_id", drop=False).rename_axis(None),
            notes,
        )


def store_results(
    run: Run, results: Results, prints: Mapping[str, str], entries: Mapping[str, EntryRow]
) -> None:
    """Store the results of a run in the cache; errors of the cache are ignored.

    `prints` has the fingerprint of each case, `entries` its entry in the history.
    """
    frames = {
        **{name: getattr(results.frames, name) for name in _FRAMES},
        "samples": results.samples.rename("value").reset_index(),
        "cases": results.cases,
        "all_notes": results.notes,
    }
    encoded = {name: encode_frame(frame) for name, frame in frames.items()}
    store_entry(
        FRAMES, hash_path(run.path), fingerprint_code(), (dict(prints), encoded, dict(entries))
    )
    evict_entries(FRAMES, MOST_RUNS)


def load_results(run: Run) -> Optional[CachedResults]:
    """Load the cached results of a run; None without a valid cache entry."""
    found = load_entry(FRAMES, hash_path(run.path), fingerprint_code())
    return None if found is None else CachedResults(*found)


# data frames as bytes, without pickled pandas classes


def encode_frame(frame: "DataFrame") -> bytes:
    """Serialize a typed data frame without its index, compressed, for the cache."""
    columns = [(name, str(values.dtype), _encode_column(values)) for name, values in frame.items()]
    return zlib.compress(pickle.dumps(columns, protocol=5), 1)


def decode_frame(content: bytes) -> "DataFrame":
    """Return the data frame that `encode_frame` serialized."""
    from pandas import DataFrame

    columns = decode(zlib.decompress(content))
    return DataFrame({name: _decode_column(dtype, values) for name, dtype, values in columns})


def _encode_column(values: "Series") -> Any:
    """Convert a column to bytes, or to a list of Python values for types without a fixed size."""
    dtype = str(values.dtype)
    if dtype == REPEATED_TEXT:
        return values.cat.codes.to_numpy("int32").tobytes(), values.cat.categories.tolist()
    if dtype == TIME:
        return values.dt.tz_localize(None).to_numpy("datetime64[ns]").tobytes()
    return values.to_numpy().tobytes() if _is_plain(dtype) else list_values(values)


def _decode_column(dtype: str, values: Any) -> Any:
    """Convert the result of `_encode_column` back to a column of type `dtype`."""
    import numpy
    from pandas import Categorical, Series

    if dtype == REPEATED_TEXT:
        codes, categories = values
        return Categorical.from_codes(numpy.frombuffer(codes, "int32"), categories)
    if dtype == TIME:
        return Series(numpy.frombuffer(values, "datetime64[ns]")).dt.tz_localize("UTC")
    if _is_plain(dtype):
        return numpy.frombuffer(values, dtype).copy()
    return make_array(dtype, values)


def _is_plain(dtype: str) -> bool:
    """Return whether columns of this pandas type are plain NumPy arrays."""
    return dtype in ("float64", "int64", "int32", "bool")
