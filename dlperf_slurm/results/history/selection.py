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
    entries, problems = _gather(folders)
    selected = select_entries(entries, patterns, frameworks)
    if selected.empty:
        raise InputError("\n".join([_explain_nothing(folders, entries), *problems]))
    return SelectedHistory(make_history(selected), problems)


def _gather(folders: Sequence[Path]) -> "tuple[DataFrame, list[str]]":
    """Read the entries of all folders, without copies of runs, and their problems."""
    from pandas import concat

    caches = [read_run_cache(folder) for folder in dict.fromkeys(folders)]
    entries, copies = drop_copies(concat([found.entries for found in caches]))
    return entries, [*(problem for found in caches for problem in found.problems), *copies]


def _explain_nothing(folders: Sequence[Path], entries: "DataFrame") -> str:
    """Explain that no case is selected, with some case ids that could be."""
    where = ", ".join(map(str, folders))
    case_ids = sorted(set(entries.case_id))
    if not case_ids:
        return f"{where}: contains no runs; name another folder of runs"
    return f"{where}: no case matches; the cases are {list_some(case_ids, SHOWN_CASES)}"
