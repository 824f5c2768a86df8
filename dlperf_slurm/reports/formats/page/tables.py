"""A table of cells -> an HTML table model: rows with linked footnote marks, and footnotes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dlperf_slurm.reports.cells import Cell, Table

# a longer table scrolls within the page
MOST_ROWS = 40


@dataclass(frozen=True)
class HtmlFootnote:
    """A footnote below its table; `mark_id` is the HTML id of the first mark that refers to it."""

    id: str
    number: int
    text: str
    mark_id: str


@dataclass(frozen=True)
class FootnoteMark:
    """A footnote number in a cell; the back link of a footnote leads to the first mark."""

    note: HtmlFootnote
    is_first: bool


@dataclass(frozen=True)
class HtmlTable:
    """A table with its HTML id, and the footnote marks of each cell.

    `places[column]` is the largest number of decimal places in a column, `marks[column]` the
    largest number of digits of a cell's footnote marks.
    """

    id: str
    table: Table
    rows: tuple[tuple[tuple[Cell, tuple[FootnoteMark, ...]], ...], ...]
    notes: tuple[HtmlFootnote, ...]
    places: tuple[int, ...]
    marks: tuple[int, ...]

    @property
    def title(self) -> str:
        return self.table.title

    @property
    def is_tall(self) -> bool:
        """Whether the table has so many rows that it scrolls within the page."""
        return len(self.rows) > MOST_ROWS

    def reserve(self, column: int) -> Markup:
        """Return the HTML attribute that reserves space for a cell's footnote marks.

        It is "" in columns whose cells have one digit at most.
        """
        marks = self.marks[column]
        return Markup(f' style="--marks:{marks}"' if marks > 1 else "")

    def pad(self, column: int, cell: Cell) -> str:
        """Return invisible digits that align a number at the decimal point: "00", ".00", or ""."""
        if cell.figure is None or not cell.text or isinstance(cell.value, tuple):
            return ""
        places = count_places(cell.text)
        missing = self.places[column] - places
        return "" if missing <= 0 else ("." if places == 0 else "") + "0" * missing


def count_places(text: str) -> int:
    """Count the decimal places of a formatted number: 2 for "1.25 %"."""
    number = text.split(" ")[0]
    return len(number.partition(".")[2])


def make_html_table(table: Table, table_id: str, footnotes: Sequence[str]) -> HtmlTable:
    """Make the HTML model of a table with its footnotes; `footnotes[n - 1]` is footnote n."""
    numbers = sorted({number for row in table.rows for cell in row for number in cell.marks})
    notes = {
        number: HtmlFootnote(
            f"{table_id}-note-{number}",
            number,
            footnotes[number - 1],
            f"{table_id}-mark-{number}",
        )
        for number in numbers
    }
    seen: set[int] = set()
    rows = []
    for row in table.rows:
        cells = []
        for cell in row:
            cells.append((cell, tuple(FootnoteMark(notes[n], n not in seen) for n in cell.marks)))
            seen.update(cell.marks)
        rows.append(tuple(cells))
    places = tuple(
        max((count_places(c.text) for c in cells if c.figure is not None), default=0)
        for cells in zip(*table.rows)
    )
    marks = tuple(
        max(sum(len(str(number)) + 1 for number in cell.marks) - 1 for cell in cells)
        for cells in zip(*table.rows)
    )
    return HtmlTable(table_id, table, tuple(rows), tuple(notes.values()), places, marks)


def make_html_tables(
    tables: Iterable[Table], name: str, footnotes: Sequence[str]
) -> list[HtmlTable]:
    """Make tables' HTML models, ids `name`-1, `name`-2, ...; footnote n is `footnotes[n - 1]`."""
    return [
        make_html_table(table, f"{name}-{number}", footnotes)
        for number, table in enumerate(tables, start=1)
    ]
