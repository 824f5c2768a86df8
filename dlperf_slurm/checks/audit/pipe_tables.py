"""Text -> its pipe tables: Markdown, and the same with rows broken over lines."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_SEPARATOR = re.compile(r"\s*\|?(\s*:?-{3,}:?\s*\|)*\s*:?-{3,}:?\s*\|?\s*")
_BAR = re.compile(r"(?<!\\)\|")
# of any punctuation of ASCII, as CommonMark has it
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")


@dataclass(frozen=True)
class PipeTable:
    """A table as it stands in a file: texts, each row with the line on which it begins.

    `problem` says why there are no more rows than these.
    """

    line: int
    header: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]
    problem: str = ""


def find_tables(text: str) -> Iterator[PipeTable]:
    """All tables of a text, by their line of dashes."""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if "|" in line and _SEPARATOR.fullmatch(line):
            yield _read_table(lines, index, len(split_cells(line)))


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
    if len(header) != width:
        problem = f"its header has {len(header)} cells, its line of dashes {width}"
        return PipeTable(separator + 1, tuple(header), (), problem)
    rows: list[tuple[int, tuple[str, ...]]] = []
    cells: list[str] = []
    begin = separator + 2
    for number, line in enumerate(lines[separator + 1 :], start=separator + 2):
        if "|" not in line:
            break
        begin = begin if cells else number
        cells += split_cells(line)
        if len(cells) > width:
            problem = f"line {begin}: {len(cells)} cells under a header of {width}"
            return PipeTable(start + 1, tuple(header), tuple(rows), problem)
        if len(cells) == width:
            rows.append((begin, tuple(cells)))
            cells = []
    problem = f"line {begin}: {len(cells)} cells under a header of {width}" if cells else ""
    return PipeTable(start + 1, tuple(header), tuple(rows), problem)
