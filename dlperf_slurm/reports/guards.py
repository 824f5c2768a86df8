"""Comparisons and the slowdown that is allowed -> the error that a CI is to stop at, if any."""

import re
from collections.abc import Sequence
from typing import Optional

from dlperf_slurm.errors import CasesFailedError, InputError, SlowerError, UndecidedError
from dlperf_slurm.reports.comparison_text import describe_comparison, format_percent
from dlperf_slurm.results.compare import RunComparison
from dlperf_slurm.results.history.timeline import Guarded, Timeline, guard_newest
from dlperf_slurm.results.significance import NOT_COMPARABLE


def parse_percent(text: Optional[str]) -> Optional[float]:
    """The fraction that a percentage stands for: "3%" -> 0.03.

    Raises InputError for anything else; a bare number could be meant either way.
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", text.strip(), re.ASCII)
    if found is None or float(found.group(1)) >= 100:
        raise InputError(f"the limit {text!r} is no percentage below 100, such as 3%")
    return float(found.group(1)) / 100


def guard_comparison(compared: RunComparison) -> None:
    """Raise the error that a CI is to stop at.

    Raises SlowerError when a case is slower than the limit allows, CasesFailedError when one of
    run A's cases cannot be compared, UndecidedError when more repeats are needed to show that none
    is slower.
    """
    guarded = [c for c in compared.comparisons if c.samples_a]
    slower = [c for c in guarded if c.is_beyond_limit]
    alone = [c for c in guarded if c.verdict == NOT_COMPARABLE]
    undecided = [c for c in guarded if not c.is_within_limit]
    limit = format_percent(compared.limit or 0.0)
    lines = [f"{c.case_id} ({c.quantity}): {describe_comparison(c)}" for c in slower or undecided]
    if slower:
        first_line = f"slower by more than {limit}: {len(slower)} of {len(guarded)} comparisons"
        raise SlowerError("\n  ".join([first_line, *lines]))
    if alone or not guarded:
        raise CasesFailedError(
            f"{len(alone)} of the {len(guarded)} figures of A cannot be compared; the notes say why"
        )
    if undecided:
        first_line = (
            f"undecided whether slower by more than {limit}: {len(undecided)} of {len(guarded)} "
            "comparisons"
        )
        raise UndecidedError("\n  ".join([first_line, *lines]))


def guard_history(timelines: Sequence[Timeline], limit: float, window: int) -> None:
    """Raise the error that a CI is to stop at.

    It is SlowerError when a case became slower, CasesFailedError when one cannot be compared,
    UndecidedError when it takes more repeats to tell.
    """
    guarded = guard_newest(timelines, limit, window)
    slower = [one for one in guarded if one.comparison.is_beyond_limit]
    if slower:
        raise SlowerError(
            f"slower by more than {format_percent(limit)}: {len(slower)} of "
            + "\n  ".join([f"{len(guarded)} cases", *map(_describe, slower)])
        )
    which = f"of the {len(guarded)} cases of the newest run that ran before"
    alone = [one for one in guarded if one.comparison.verdict == NOT_COMPARABLE]
    if alone or not guarded:
        first_line = f"--fail-if-slower: {len(alone)} {which} cannot be compared"
        raise CasesFailedError("\n  ".join([first_line, *map(_describe, alone)]))
    undecided = [one for one in guarded if not one.comparison.is_within_limit]
    if undecided:
        first_line = f"--fail-if-slower: {len(undecided)} {which} take more repeats to tell"
        raise UndecidedError("\n  ".join([first_line, *map(_describe, undecided)]))


def _describe(guarded: Guarded) -> str:
    against = f" against {guarded.reference.run_id}" if guarded.reference else ""
    return f"{guarded.comparison.case_id}{against}: {describe_comparison(guarded.comparison)}"
