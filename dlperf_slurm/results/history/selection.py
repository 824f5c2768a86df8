"""Folders of runs and patterns of cases -> what the cases measured from run to run."""

from collections.abc import Sequence
from pathlib import Path

from dlperf_slurm.errors import InputError
from dlperf_slurm.results.history.catalogue import read_catalogue
from dlperf_slurm.results.history.entries import Entry
from dlperf_slurm.results.history.timeline import (
    Timeline,
    drop_copies,
    make_timelines,
    select_entries,
)

# the most case ids that an error lists
SHOWN_CASES = 5


def read_timelines(
    folders: Sequence[Path], patterns: Sequence[str], frameworks: Sequence[str]
) -> tuple[tuple[Timeline, ...], list[str]]:
    """The cases that are selected, over all runs in these folders; and what was left out, and why.

    Raises InputError when no case is selected.
    """
    entries, problems = _gather(folders)
    selected = select_entries(entries, patterns, frameworks)
    if not selected:
        raise InputError("\n".join([_explain_nothing(folders, entries), *problems]))
    return make_timelines(selected), problems


def _gather(folders: Sequence[Path]) -> tuple[list[Entry], list[str]]:
    catalogues = [read_catalogue(folder) for folder in dict.fromkeys(folders)]
    entries, copies = drop_copies(entry for found in catalogues for entry in found.entries)
    return entries, [*(problem for found in catalogues for problem in found.problems), *copies]


def _explain_nothing(folders: Sequence[Path], entries: Sequence[Entry]) -> str:
    where = ", ".join(map(str, folders))
    case_ids = sorted({entry.case_id for entry in entries})
    if not case_ids:
        return f"{where}: no runs here; name another folder of runs"
    known = ", ".join(case_ids[:SHOWN_CASES])
    more = f" and {len(case_ids) - SHOWN_CASES} more" if len(case_ids) > SHOWN_CASES else ""
    return f"{where}: no case is selected; there are {known}{more}"
