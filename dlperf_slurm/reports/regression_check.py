"""Comparisons and the allowed slowdown -> the error that makes a CI job fail, if any."""

import re
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.errors import CasesFailedError, InconclusiveError, InputError, SlowerError
from dlperf_slurm.reports.comparison_text import describe_pair, format_percent
from dlperf_slurm.results.columns import list_records
from dlperf_slurm.results.compare import Row, RunComparison
from dlperf_slurm.results.history.timeline import compare_newest
from dlperf_slurm.results.significance import NOT_COMPARABLE

if TYPE_CHECKING:
    from pandas import DataFrame


def parse_percent(text: Optional[str]) -> Optional[float]:
    """Parse a percentage as a fraction: "3%" -> 0.03; None stays None.

    Raises InputError for anything else, also for a number without "%", which would be ambiguous.
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", text.strip(), re.ASCII)
    if found is None or float(found.group(1)) >= 100:
        raise InputError(f"the limit {text!r} is not a percentage below 100, such as 3%")
    return float(found.group(1)) / 100


def guard_comparison(compared: RunComparison) -> None:
    """Raise an error unless run B is shown not to be slower in any case than the limit allows.

    `compared.limit` is the limit. Raises SlowerError if a case is slower than the limit allows,
    CasesFailedError if one of run A's cases cannot be compared, InconclusiveError if more repeats
    are needed to show that none is slower.
    """
    guarded = [pair for pair in list_records(compared.pairs) if pair["samples_a"]]
    slower = [pair for pair in guarded if pair["is_beyond_limit"]]
    alone = [pair for pair in guarded if pair["verdict"] == NOT_COMPARABLE]
    undecided = [pair for pair in guarded if not pair["is_within_limit"]]
    limit = format_percent(compared.limit or 0.0)
    lines = [
        f"{pair['case_id']} ({pair['quantity']}): {describe_pair(pair)}"
        for pair in slower or undecided
    ]
    if slower:
        first_line = f"slower by more than {limit}: {len(slower)} of {len(guarded)} comparisons"
        raise SlowerError("\n  ".join([first_line, *lines]))
    if alone or not guarded:
        raise CasesFailedError(
            f"{len(alone)} of the {len(guarded)} results of run A cannot be compared; the "
            "notes give the reasons"
        )
    if undecided:
        first_line = (
            f"undecided whether slower by more than {limit}: {len(undecided)} of {len(guarded)} "
            "comparisons"
        )
        raise InconclusiveError("\n  ".join([first_line, *lines]))


def guard_history(history: "DataFrame", limit: float, window: int) -> None:
    """Raise an error unless the newest run is shown not to be slower than the runs before it.

    `limit` is the allowed slowdown, such as 0.03; `window` is the number of earlier runs to compare
    with. Raises SlowerError if a case became slower, CasesFailedError if one cannot be compared,
    InconclusiveError if more repeats are needed.
    """
    guarded = list_records(compare_newest(history, limit, window))
    slower = [pair for pair in guarded if pair["is_beyond_limit"]]
    if slower:
        raise SlowerError(
            f"slower by more than {format_percent(limit)}: {len(slower)} of "
            + "\n  ".join([f"{len(guarded)} cases", *map(_describe, slower)])
        )
    which = f"of the {len(guarded)} cases of the newest run that have an earlier result"
    alone = [pair for pair in guarded if pair["verdict"] == NOT_COMPARABLE]
    if alone or not guarded:
        first_line = f"--fail-if-slower: {len(alone)} {which} cannot be compared"
        raise CasesFailedError("\n  ".join([first_line, *map(_describe, alone)]))
    undecided = [pair for pair in guarded if not pair["is_within_limit"]]
    if undecided:
        first_line = f"--fail-if-slower: {len(undecided)} {which} need more repeats to decide"
        raise InconclusiveError("\n  ".join([first_line, *map(_describe, undecided)]))


def _describe(pair: Row) -> str:
    """Describe the comparison of one case with its reference run in one line."""
    against = f" against {pair['reference']}" if pair["reference"] else ""
    return f"{pair['case_id']}{against}: {describe_pair(pair)}"
