"""Comparisons and the allowed slowdown -> checks for a CI system, and the error of a CI job."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.errors import CasesFailedError, InconclusiveError, InputError, SlowerError
from dlperf_slurm.reports.ci_checks import ERROR, FAILURE, PASSED, SKIPPED, Check
from dlperf_slurm.reports.comparison_text import describe_pair, format_percent
from dlperf_slurm.results.columns import list_records
from dlperf_slurm.results.compare import Row, RunComparison
from dlperf_slurm.results.significance import NOT_COMPARABLE, UNDECIDED

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
    """Raise an error unless run B is shown not to be slower in any case than `compared.limit`.

    Raises SlowerError if a case is slower than the limit allows, CasesFailedError if one of run A's
    cases cannot be compared, InconclusiveError if more repeats are needed to show that none is
    slower.
    """
    guarded = [pair for pair in list_records(compared.pairs) if pair["samples_a"]]
    _guard(guarded, compared.limit or 0.0, "results of run B against run A")


def guard_history(newest: "DataFrame", limit: float) -> None:
    """Raise an error unless each case that `compare_newest` compares is within the limit.

    `limit` is the allowed slowdown, a fraction. Raises the same errors as `guard_comparison`.
    """
    _guard(list_records(newest), limit, "cases of the newest run that have an earlier result")


def _guard(guarded: Sequence[Row], limit: float, what: str) -> None:
    """Raise the error of the worst pairs, or none if all are within the limit.

    Raises SlowerError if a pair is slower, else CasesFailedError if one cannot be compared or there
    is none, else InconclusiveError. The message has `limit` and `what`, "results of run B against
    run A".
    """
    slower = [pair for pair in guarded if pair["is_beyond_limit"]]
    alone = [pair for pair in guarded if pair["verdict"] == NOT_COMPARABLE]
    undecided = [pair for pair in guarded if not pair["is_within_limit"]]
    bound = f"slower by more than {format_percent(limit)}"
    of_all = f"of {len(guarded)} {what}"
    if slower:
        raise SlowerError(_list_pairs(f"{bound}: {len(slower)} {of_all}", slower))
    if alone or not guarded:
        first_line = f"{len(alone)} {of_all} cannot be compared"
        raise CasesFailedError(_list_pairs(first_line, alone))
    if undecided:
        first_line = f"{len(undecided)} {of_all} may be {bound}; more repeats are needed to decide"
        raise InconclusiveError(_list_pairs(first_line, undecided))


def _list_pairs(first_line: str, pairs: Iterable[Row]) -> str:
    """Return `first_line` and a line for each pair, as one message."""
    lines = (f"{_name_pair(pair)}: {describe_pair(pair)}" for pair in pairs)
    return "\n  ".join([first_line, *lines])


def _name_pair(pair: Row) -> str:
    """Return a compared pair's name in messages: "CASE (QUANTITY)", or "CASE against RUN"."""
    if "reference" not in pair:
        return f"{pair['case_id']} ({pair['quantity']})"
    return " against ".join(filter(None, (pair["case_id"], pair["reference"])))


def list_comparison_checks(compared: RunComparison) -> list[Check]:
    """Return a CI check per row of `RunComparison.pairs`.

    Only with a limit is there a FAILURE or ERROR, for which `guard_comparison` raises an error.
    """
    pairs = list_records(compared.pairs)
    is_guarded = any(pair["samples_a"] for pair in pairs)
    return [
        Check(pair["quantity"], pair["case_id"],
            _find_outcome(pair, compared.limit, is_guarded), describe_pair(pair))
        for pair in pairs
    ]  # fmt: skip


def list_history_checks(newest: "DataFrame", limit: Optional[float]) -> list[Check]:
    """Return a CI check per case that `compare_newest` compared; without any, one that says so.

    Only with a limit is there a FAILURE or ERROR, for which `guard_history` raises an error.
    """
    checks = [
        Check("history", pair["case_id"], _find_outcome(pair, limit, False),
            f"{_name_pair(pair)}: {describe_pair(pair)}")
        for pair in list_records(newest)
    ]  # fmt: skip
    text = "no case of the newest run has an earlier result"
    return checks or [Check("history", "newest run", SKIPPED if limit is None else ERROR, text)]


def _find_outcome(pair: Row, limit: Optional[float], is_guarded: bool) -> str:
    """Return PASSED, SKIPPED, FAILURE or ERROR for a compared pair; `limit` is None for no check.

    `is_guarded`: run A has results, so that a case without one in run A is new, and is skipped.
    """
    if limit is None:
        return SKIPPED if pair["verdict"] in (UNDECIDED, NOT_COMPARABLE) else PASSED
    if is_guarded and not pair["samples_a"]:
        return SKIPPED
    if pair["is_beyond_limit"]:
        return FAILURE
    return PASSED if pair["is_within_limit"] else ERROR
