"""A run -> its results, from a cache; only cases that have changed are read again.

A case has changed if any file of its repeats has another size, time or inode than when the cache
was written.
"""

import hashlib
import pickle
import zlib
from collections.abc import Sequence
from contextlib import suppress

from dlperf_slurm.config.folders import hash_path
from dlperf_slurm.jobs.case_file import fingerprint_cases
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

# what is kept of a case: its fingerprint, its pickled and compressed rows, its entry in the history
CachedCase = tuple[str, bytes, EntryRow]


def read_results(attempts: Attempts, found: list[FileState]) -> Results:
    """Return the results of a run; cases unchanged since the last report are from the cache.

    Other cases are read, by several processes with at most one case in memory each, and stored,
    with a summary of the run for `history`. `found` is what `find_files` returned before the
    attempts were found.
    """
    run = attempts.run
    planned = run.manifest.cases
    prints = fingerprint_results(attempts, found)
    kept: dict[str, CachedCase] = load_entry(ROWS, hash_path(run.path), fingerprint_code()) or {}
    changed = [
        c for c in planned if c.case_id not in kept or kept[c.case_id][0] != prints[c.case_id]
    ]

    def summarize(outcomes: CaseOutcomes) -> CachedCase:
        case_id = outcomes.case.case_id
        entry = make_entry(run.path, run.manifest, outcomes)
        rows = pickle.dumps(tuple(summarize_case(outcomes)), protocol=5)
        return prints[case_id], zlib.compress(rows, 1), entry

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


def fingerprint_results(attempts: Attempts, found: Sequence[FileState]) -> dict[str, str]:
    """Fingerprint all that the results of each case depend on, without opening files, by case id.

    `found` has the files of the run. Those of an attempt are in its folder, such as
    "cases/CASE_ID/r1/a1"; all cases share the file of cases, or the run's archive.
    """
    shared: tuple[object, ...] = ()
    with suppress(FileNotFoundError):
        shared = fingerprint_cases(attempts.run.path)
    files: dict[str, list[FileState]] = {}
    for state in found:
        files.setdefault("/".join(state[0].split("/", 4)[:4]), []).append(state)
    prints = {}
    for case in attempts.run.manifest.cases:
        repeats = attempts.list_repeats(case)
        known = [
            (
                files.get(task.attempt_dir),
                task,
                attempts.states.get(task.marker),
                task.group_id in attempts.submitted,
            )
            for repeat in repeats
            for task in attempts.tasks.get((case.case_id, repeat), ())
        ]
        text = ascii((shared, case, repeats, known))
        digest = hashlib.blake2b(text.encode(), digest_size=32)
        prints[case.case_id] = digest.hexdigest()
    return prints


def decode_rows(content: bytes) -> CaseRows:
    """Return the rows of a case from a cache entry."""
    return CaseRows(*decode(zlib.decompress(content)))
