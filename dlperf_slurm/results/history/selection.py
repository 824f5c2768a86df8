"""Results folders and patterns of case ids -> the history of the selected cases."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.errors import InputError
from dlperf_slurm.plain_text import list_some
from dlperf_slurm.results.history.run_cache import read_run_cache
from dlperf_slurm.results.history.timeline import drop_copies, make_history, select_entries

if TYPE_CHECKING:
    from pandas import DataFrame

# the maximum number of case ids in an error message
SHOWN_CASES = 5


@dataclass(frozen=True)
class SelectedHistory:
    """The rows of `make_history`; `problems` says which runs or files were left out, and why."""

    rows: "DataFrame"
    problems: Sequence[str]


def read_history(
    folders: Sequence[Path], patterns: Sequence[str], frameworks: Sequence[str]
) -> SelectedHistory:
    """Read the history of the selected cases from all runs in these results folders.

    `patterns` and `frameworks` select cases as in `select_entries`. Raises InputError if no case is
    selected.
    """
    from pandas import concat

    caches = [read_run_cache(folder) for folder in dict.fromkeys(folders)]
    entries, copies = drop_copies(concat([found.entries for found in caches]))
    problems = [*(problem for found in caches for problem in found.problems), *copies]
    selected = select_entries(entries, patterns, frameworks)
    if selected.empty:
        case_ids = sorted(set(entries.case_id))
        reason = "contains no runs; name another folder of runs"
        if case_ids:
            reason = f"no case matches; the cases are {list_some(case_ids, SHOWN_CASES)}"
        raise InputError("\n".join([f"{', '.join(map(str, folders))}: {reason}", *problems]))
    return SelectedHistory(make_history(selected), problems)
