"""Grids -> tables whose cells know their footnotes and how they sort."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dlperf_slurm.reports.accuracy_text import read_duration
from dlperf_slurm.reports.text import Grid, split_marks

# "95.98 {95.63 to 97.79}", "770.00 n=2 of 3": the figure, then how sure it is
_SPREAD = re.compile(
    r"(?P<value>\S+(?: %)?) (?P<spread>[({][^(){}]*[)}](?: n=\d+ of \d+)?|n=\d+ of \d+)"
)
_NUMBER = re.compile(r"^-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")

# a longer text is folded where there is no room
LONGEST_LINE = 36
# a longer table scrolls within the page
MOST_ROWS = 40


@dataclass(frozen=True)
class Mark:
    """A footnote's number in a cell, with the id by which the footnote links back to it."""

    number: int
    reference_id: str


@dataclass(frozen=True)
class HtmlCell:
    """`sort_value` is the figure that a cell of figures begins with; empty where it has none.

    Of a duration it is in seconds.
    """

    text: str
    spread: str
    sort_value: str
    marks: tuple[Mark, ...]
    is_figure: bool

    @property
    def whole_text(self) -> str:
        """All but the marks."""
        return f"{self.text} {self.spread}".rstrip()

    @property
    def is_long(self) -> bool:
        return len(self.text) > LONGEST_LINE


@dataclass(frozen=True)
class HtmlTable:
    """A grid for the page; the first cell of a row is its heading."""

    id: str
    title: str
    header: tuple[str, ...]
    text_columns: int
    rows: tuple[tuple[HtmlCell, ...], ...]
    caption: str

    @property
    def is_tall(self) -> bool:
        return len(self.rows) > MOST_ROWS


@dataclass
class References:
    """Ids of the marks that refer to each footnote, in their order on the page."""

    footnotes: int
    ids: dict[int, list[str]] = field(default_factory=dict)

    def add(self, number: int) -> Mark:
        ids = self.ids.setdefault(number, [])
        ids.append(f"mark-{number}-{len(ids) + 1}")
        return Mark(number, ids[-1])


def make_html_table(grid: Grid, table_id: str, references: References) -> HtmlTable:
    return HtmlTable(
        id=table_id,
        title=grid.title,
        header=grid.header,
        text_columns=grid.text_columns,
        rows=tuple(tuple(_make_cells(grid, row, references)) for row in grid.rows),
        caption=grid.caption,
    )


def _make_cells(grid: Grid, row: tuple[str, ...], references: References) -> Iterator[HtmlCell]:
    footnotes = references.footnotes if grid.has_marks else 0
    for column, cell in enumerate(row):
        is_figure = column >= grid.text_columns
        text, numbers = split_marks(cell, footnotes)
        match = _SPREAD.fullmatch(text) if is_figure else None
        value, spread = (match["value"], match["spread"]) if match else (text, "")
        sort_value = _find_sort_value(value) if is_figure else ""
        yield HtmlCell(value, spread, sort_value, tuple(map(references.add, numbers)), is_figure)


def _find_sort_value(text: str) -> str:
    seconds = read_duration(text)
    number = _NUMBER.match(text if seconds is None else f"{seconds:.1f}")
    return number[0] if number else ""
