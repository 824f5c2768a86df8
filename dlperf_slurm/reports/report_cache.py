"""A run -> its results, from a cache; only cases that have changed are read again.

A case has changed if any file of its repeats has another size, time or inode than when the cache
was written.
"""

import hashlib
import pickle
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress

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
from dlperf_slurm.results.case_summary import CaseRows, make_run_frames, summarize_case
from dlperf_slurm.results.cases import Results, analyze_frames
from dlperf_slurm.results.collect import Attempts, CaseOutcomes
from dlperf_slurm.results.history.entries import complete_entries, make_entry
from dlperf_slurm.results.history.run_cache import EntryRow, store_summary

# the folder of the cache, and the most runs in it
ROWS = "rows"
MOST_RUNS = 100
_DIGEST_BYTES = 32

# what is kept of a case: its fingerprint, its rows (`encode_rows`), and its entry in the history
CachedCase = tuple[str, bytes, EntryRow]


def read_results(attempts: Attempts, found: list[FileState]) -> Results:
    """Return the results of a run; cases unchanged since the last report are from the cache.

    Other cases are read, by several processes with at most one case in memory each, and stored,
    with a summary of the run for `history`. `found` is what `find_files` returned before the
    attempts were found.
    """
    run = attempts.run
    planned = run.manifest.cases
    shared = fingerprint_run(run)
    files = group_by_attempt(found)
    prints = {case.case_id: fingerprint_case(attempts, case, shared, files) for case in planned}
    kept: dict[str, CachedCase] = load_entry(ROWS, hash_path(run.path), fingerprint_code()) or {}
    changed = [
        c for c in planned if c.case_id not in kept or kept[c.case_id][0] != prints[c.case_id]
    ]

    def summarize(outcomes: CaseOutcomes) -> CachedCase:
        case_id = outcomes.case.case_id
        entry = make_entry(run.path, run.manifest, outcomes)
        return prints[case_id], encode_rows(summarize_case(outcomes)), entry

    if changed:
        kept.update(zip((case.case_id for case in changed), attempts.map_cases(summarize, changed)))
        # errors of the cache are ignored
        store_entry(ROWS, hash_path(run.path), fingerprint_code(), kept)
        evict_entries(ROWS, MOST_RUNS)
        # ignored here, since `history` reports a run that it cannot show
        with suppress(ValueError):
            own = {case_id: entry for case_id, (*_, entry) in kept.items()}
            store_summary(run.path, found, complete_entries(run, own))
    frames = make_run_frames([decode_rows(kept[case.case_id][1]) for case in planned])
    return analyze_frames(planned, frames)


# fingerprints


def fingerprint_run(run: Run) -> tuple[object, ...]:
    """Return size, time and inode of the file that all cases share, or of a run's archive.

    Returns () if there is neither.
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
    of each attempt by its folder.
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


def encode_rows(case: CaseRows) -> bytes:
    """Serialize the rows of a case for the cache, compressed."""
    return zlib.compress(pickle.dumps(tuple(case), protocol=5), 1)


def decode_rows(content: bytes) -> CaseRows:
    """Return the rows of a case that `encode_rows` serialized."""
    return CaseRows(*decode(zlib.decompress(content)))
