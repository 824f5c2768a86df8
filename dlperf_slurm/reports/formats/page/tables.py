"""A table of cells -> what the page shows of it: its rows with marks, and the notes below it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlperf_slurm.reports.cells import Cell, Table

# a longer table scrolls within the page
MOST_ROWS = 40


@dataclass(frozen=True)
class Note:
    """A footnote below its table."""

    id: str
    number: int
    text: str
    mark_id: str


@dataclass(frozen=True)
class Mark:
    """A footnote's number in a cell; the first one of a table has the id to go back to."""

    note: Note
    is_first: bool


@dataclass(frozen=True)
class HtmlTable:
    """A table with its id; of each cell the marks. The first cell of a row is its heading.

    `pads[column]` is how many digits its figures have behind the point at most.
    """

    id: str
    table: Table
    rows: tuple[tuple[tuple[Cell, tuple[Mark, ...]], ...], ...]
    notes: tuple[Note, ...]
    places: tuple[int, ...]

    @property
    def title(self) -> str:
        return self.table.title

    @property
    def is_tall(self) -> bool:
        return len(self.rows) > MOST_ROWS

    def pad(self, column: int, cell: Cell) -> str:
        """What a figure lacks of the digits behind the point that others of its column have."""
        if cell.figure is None or not cell.text or isinstance(cell.value, tuple):
            return ""
        places = count_places(cell.text)
        missing = self.places[column] - places
        return "" if missing <= 0 else ("." if places == 0 else "") + "0" * missing


def count_places(text: str) -> int:
    """How many digits stand behind the point of a figure."""
    number = text.split(" ")[0]
    return len(number.partition(".")[2])


def make_html_table(table: Table, table_id: str, footnotes: Sequence[str]) -> HtmlTable:
    """The table with the footnotes that its cells refer to; `footnotes[n - 1]` is number n."""
    numbers = sorted({number for row in table.rows for cell in row for number in cell.marks})
    notes = {
        number: Note(
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
            cells.append((cell, tuple(Mark(notes[n], n not in seen) for n in cell.marks)))
            seen.update(cell.marks)
        rows.append(tuple(cells))
    places = tuple(_find_places(row[i] for row in table.rows) for i in range(len(table.header)))
    return HtmlTable(table_id, table, tuple(rows), tuple(notes.values()), places)


def make_html_tables(
    tables: Iterable[Table], name: str, footnotes: Sequence[str]
) -> list[HtmlTable]:
    """The tables with ids of the name and a number."""
    return [
        make_html_table(table, f"{name}-{number}", footnotes)
        for number, table in enumerate(tables, start=1)
    ]


def _find_places(cells: Iterable[Cell]) -> int:
    return max((count_places(cell.text) for cell in cells if cell.figure is not None), default=0)
