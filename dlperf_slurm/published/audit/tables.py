"""Text -> its pipe tables, each with the words that stand above it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Optional

_SEPARATOR = re.compile(r"\s*\|?(\s*:?-+:?\s*\|)*\s*:?-+:?\s*\|?\s*")
_BAR = re.compile(r"(?<!\\)\|")
# an escape of any punctuation of ASCII, as CommonMark has it
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")


@dataclass(frozen=True)
class PipeTable:
    """A table as it stands in a file: texts, each row with the line on which it begins.

    `problems` say which lines are no rows of it. `title` is the text right above it, `heading` the
    line of the last heading, which tables of one setting share.
    """

    line: int
    header: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]
    problems: tuple[str, ...] = ()
    title: str = ""
    heading: int = 0


def find_tables(text: str) -> Iterator[PipeTable]:
    """The tables of a text, which are found by their line of dashes."""
    lines = text.split("\n")
    heading = 0
    for index, line in enumerate(lines):
        if line.startswith("#"):
            heading = index + 1
        if "|" in line and _SEPARATOR.fullmatch(line):
            table = _read_table(lines, index, len(split_cells(line)))
            yield replace(table, title=_find_title(lines, table.line - 1), heading=heading)


def _find_title(lines: Sequence[str], end: int) -> str:
    """The last line of text above a table, which other tables and headings end."""
    for line in reversed(lines[:end]):
        if line.strip():
            return "" if "|" in line else line.strip().lstrip("#").strip()
    return ""


def split_cells(line: str) -> list[str]:
    """The texts between the bars; those at the ends may be missing."""
    cells = [_ESCAPED.sub(r"\1", cell.strip()) for cell in _BAR.split(line.strip())]
    first = 1 if not cells[0] else 0
    last = len(cells) - 1 if not cells[-1] else len(cells)
    return cells[first:last]


def _read_table(lines: Sequence[str], separator: int, width: int) -> PipeTable:
    header: list[str] = []
    start = separator
    while len(header) < width and start > 0 and "|" in lines[start - 1]:
        start -= 1
        header = split_cells(lines[start]) + header
    rows, problems = _read_rows(lines, separator + 1, max(width, len(header)))
    widths = {len(cells) for _, cells in rows}
    # a line of dashes that is too short or too long, over rows that are as wide as the header
    if len(header) != width and widths != {len(header)}:
        problem = f"its header has {len(header)} cells, its line of dashes {width}"
        return PipeTable(separator + 1, tuple(header), (), (problem,))
    return PipeTable(start + 1, tuple(header), tuple(rows), tuple(problems))


def _read_rows(
    lines: Sequence[str], first: int, width: int
) -> tuple[list[tuple[int, tuple[str, ...]]], list[str]]:
    """The rows from a line on, and the lines that are none.

    A row may be broken over lines; one of another width costs no more than itself.
    """
    rows: list[tuple[int, tuple[str, ...]]] = []
    problems: list[str] = []
    number = first
    while number < len(lines) and "|" in lines[number]:
        begin = number
        cells = split_cells(lines[number])
        joined = list(cells)
        while len(joined) < width and number + 1 < len(lines) and "|" in lines[number + 1]:
            following = split_cells(lines[number + 1])
            if len(joined) + len(following) > width:
                break
            number += 1
            joined += following
        number += 1
        if len(joined) == width:
            rows.append((begin + 1, tuple(joined)))
            continue
        number = begin + 1
        line = lines[begin].strip()
        fitted = _fit(cells, width, is_closed=line.startswith("|") and line.endswith("|"))
        if fitted is not None:
            rows.append((begin + 1, fitted))
        else:
            problem = f"line {begin + 1}: {len(cells)} cells under a header of {width}"
            problems.append(problem)
    return rows, problems


def _fit(cells: Sequence[str], width: int, is_closed: bool) -> Optional[tuple[str, ...]]:
    """The cells without empty ones that a bar too many makes; None where others are too many.

    As in GitHub's, cells that are missing at the end of a row with bars at both ends are empty.
    """
    kept = list(cells)
    # words behind the last bar are no cell
    while len(kept) > width and not any(letter.isdigit() for letter in kept[-1]):
        del kept[-1]
    while len(kept) > width and not kept[0]:
        del kept[0]
    if is_closed and width - 2 <= len(kept) < width:
        kept += [""] * (width - len(kept))
    return tuple(kept) if len(kept) == width else None
