"""Text -> its pipe tables, each with its title and heading."""

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
    """A table of a text, as printed: `rows` are (number of the first line, texts of the cells).

    `problems` are messages about lines that are no rows of the table. `title` is the text right
    above it; `heading` is the line number of the last Markdown heading, which related tables share.
    """

    line: int
    header: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]
    problems: tuple[str, ...] = ()
    title: str = ""
    heading: int = 0


def find_tables(text: str) -> Iterator[PipeTable]:
    """Yield the Markdown tables of a text, which are found by their separator lines of dashes."""
    lines = text.split("\n")
    heading = 0
    for index, line in enumerate(lines):
        if line.startswith("#"):
            heading = index + 1
        if "|" in line and _SEPARATOR.fullmatch(line):
            table = _read_table(lines, index, len(split_cells(line)))
            yield replace(table, title=_find_title(lines, table.line - 1), heading=heading)


def _find_title(lines: Sequence[str], end: int) -> str:
    """Return the last text line above line index `end`; "" if that belongs to a table."""
    for line in reversed(lines[:end]):
        if line.strip():
            return "" if "|" in line else line.strip().lstrip("#").strip()
    return ""


def split_cells(line: str) -> list[str]:
    """Split a row into the texts between the bars; bars at the ends are optional."""
    cells = [_ESCAPED.sub(r"\1", cell.strip()) for cell in _BAR.split(line.strip())]
    first = 1 if not cells[0] else 0
    last = len(cells) - 1 if not cells[-1] else len(cells)
    return cells[first:last]


def _read_table(lines: Sequence[str], separator: int, width: int) -> PipeTable:
    """Parse the table around a line of dashes (`separator`, a line index) with `width` columns."""
    header: list[str] = []
    start = separator
    while len(header) < width and start > 0 and "|" in lines[start - 1]:
        start -= 1
        header = split_cells(lines[start]) + header
    rows, problems = _read_rows(lines, separator + 1, max(width, len(header)))
    widths = {len(cells) for _, cells in rows}
    # the line of dashes may have the wrong width if all rows are as wide as the header
    if len(header) != width and widths != {len(header)}:
        problem = f"the header has {len(header)} cells, but the line of dashes below it has {width}"
        return PipeTable(separator + 1, tuple(header), (), (problem,))
    return PipeTable(start + 1, tuple(header), tuple(rows), tuple(problems))


def _read_rows(
    lines: Sequence[str], first: int, width: int
) -> tuple[list[tuple[int, tuple[str, ...]]], list[str]]:
    """Parse the rows from line index `first` on; return them, and messages about other lines.

    A row may be broken over several lines. A row of another width affects no other rows.
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
            problem = f"line {begin + 1}: {len(cells)} cells, but the header has {width}"
            problems.append(problem)
    return rows, problems


def _fit(cells: Sequence[str], width: int, is_closed: bool) -> Optional[tuple[str, ...]]:
    """Return the cells of a row, as many as the table is wide; None if that is impossible.

    Leading empty cells and trailing cells without a digit are dropped. As in GitHub's tables,
    missing cells at the end of a row with bars at both ends (`is_closed`) are empty.
    """
    kept = list(cells)
    # text after the last bar is no cell
    while len(kept) > width and not any(letter.isdigit() for letter in kept[-1]):
        del kept[-1]
    while len(kept) > width and not kept[0]:
        del kept[0]
    if is_closed and width - 2 <= len(kept) < width:
        kept += [""] * (width - len(kept))
    return tuple(kept) if len(kept) == width else None
