"""A table of cells -> an HTML table model: rows with linked footnote marks, and footnotes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from markupsafe import Markup

from dlperf_slurm.reports.cells import Cell, Table

# a longer table scrolls within the page
MOST_ROWS = 40


@dataclass(frozen=True)
class HtmlTable:
    """A table with its HTML id, and the texts of its footnotes by number.

    The ids of a footnote, and of the first mark that refers to it, begin with that of the table.
    """

    id: str
    table: Table
    notes: Mapping[int, str]

    @property
    def rows(self) -> Iterator[list[tuple[Cell, list[tuple[int, bool]]]]]:
        """The cells of each row, each with its footnote numbers and whether each mark is the first.

        The back link of a footnote leads to that mark.
        """
        seen: set[int] = set()
        for row in self.table.rows:
            cells = []
            for cell in row:
                cells.append((cell, [(number, number not in seen) for number in cell.marks]))
                seen.update(cell.marks)
            yield cells

    @cached_property
    def _places(self) -> list[int]:
        """The largest number of decimal places in each column."""
        return [
            max((count_places(c.text) for c in cells if c.figure is not None), default=0)
            for cells in zip(*self.table.rows)
        ]

    @cached_property
    def _marks(self) -> list[int]:
        """The largest number of digits of a cell's footnote marks in each column."""
        return [
            max(sum(len(str(number)) + 1 for number in cell.marks) - 1 for cell in cells)
            for cells in zip(*self.table.rows)
        ]

    @property
    def title(self) -> str:
        return self.table.title

    @property
    def is_tall(self) -> bool:
        """Whether the table has so many rows that it scrolls within the page."""
        return len(self.table.rows) > MOST_ROWS

    def reserve(self, column: int) -> Markup:
        """Return the HTML attribute that reserves space for a cell's footnote marks.

        It is "" in columns whose cells have one digit at most.
        """
        marks = self._marks[column]
        return Markup(f' style="--marks:{marks}"' if marks > 1 else "")

    def pad(self, column: int, cell: Cell) -> str:
        """Return invisible digits that align a number at the decimal point: "00", ".00", or ""."""
        if cell.figure is None or not cell.text or isinstance(cell.value, tuple):
            return ""
        places = count_places(cell.text)
        missing = self._places[column] - places
        return "" if missing <= 0 else ("." if places == 0 else "") + "0" * missing


def count_places(text: str) -> int:
    """Count the decimal places of a formatted number: 2 for "1.25 %"."""
    number = text.split(" ")[0]
    return len(number.partition(".")[2])


def make_html_table(table: Table, table_id: str, footnotes: Sequence[str]) -> HtmlTable:
    """Make the HTML model of a table with its footnotes; `footnotes[n - 1]` is footnote n."""
    return HtmlTable(table_id, table, {n: footnotes[n - 1] for n in table.marks})


def make_html_tables(
    tables: Iterable[Table], name: str, footnotes: Sequence[str]
) -> list[HtmlTable]:
    """Make tables' HTML models, ids `name`-1, `name`-2, ...; footnote n is `footnotes[n - 1]`."""
    return [
        make_html_table(table, f"{name}-{number}", footnotes)
        for number, table in enumerate(tables, start=1)
    ]
