"""Untrusted text -> text that is safe in a terminal or a spreadsheet; counts, lists, patterns."""

import os
import re
from collections.abc import Sequence

# C0 and C1 control characters except tabs and line ends, DEL, bidirectional controls, invisible
# spaces, other line and paragraph separators, surrogates
_CONTROLS = (
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff"
    "\ud800-\udfff]"
)
# first characters of formulas in spreadsheets
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t")


def count_things(number: int, noun: str) -> str:
    """Format a count with its noun (plural with s): "1 case", "2 cases", "1,000 array tasks"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def write_duration(seconds: float) -> str:
    """Format an estimated duration: "40 s" below 110 s, "12 min" below 90 min, else "1.5 h"."""
    if seconds < 110:
        return f"{max(10, -10 * int(-seconds // 10))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


def list_some(names: Sequence[str], limit: int = 3) -> str:
    """Return the first names, and how many more there are: "a, b, c and 5 more"."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def matches_pattern(text: str, patterns: Sequence[str]) -> bool:
    """Return whether a text matches any of these patterns of shell wildcards.

    A pattern without `*`, `?` and `[` matches anywhere in the text.
    """
    from fnmatch import fnmatchcase

    wanted = (p if any(sign in p for sign in "*?[") else f"*{p}*" for p in patterns)
    return any(fnmatchcase(text, pattern) for pattern in wanted)


def strip_controls(text: str) -> str:
    """Remove control characters, except tabs and line ends."""
    # compiled at the first use, to keep --help fast
    return re.sub(_CONTROLS, "", text)


def break_workflow_commands(text: str) -> str:
    """In a job of GitHub Actions, break texts that its runner would take for commands in a log.

    Such as "::stop-commands::x" at the start of a line, or "##[add-mask]x" anywhere: a space is put
    in. Elsewhere, the text is returned unchanged.
    """
    if "GITHUB_ACTIONS" not in os.environ:
        return text
    return re.sub(r"^(\s*:)(?=:)|(##)(?=\[)", r"\1\2 ", text, flags=re.MULTILINE)


def make_one_line(text: str) -> str:
    """Make a text one line without control characters: its lines, stripped, joined by spaces."""
    if text.isprintable():
        return text
    lines = re.split("[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]", text)
    return strip_controls(" ".join(filter(None, map(str.strip, lines))))


def defuse_cell(text: str) -> str:
    """Make a text safe for a CSV cell: an apostrophe precedes a text that begins like a formula."""
    plain = strip_controls(text).replace("\n", " ")
    return f"'{plain}" if plain.lstrip(" ").startswith(_FORMULA_SIGNS) else plain
