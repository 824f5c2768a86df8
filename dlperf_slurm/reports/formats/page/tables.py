"""Tables -> tables of the page, whose footnotes' marks have ids to link back to."""

from dataclasses import dataclass, field

from dlperf_slurm.reports.cells import Cell, Table

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
class HtmlTable:
    """A table with its id; of each cell the marks. The first cell of a row is its heading."""

    id: str
    table: Table
    rows: tuple[tuple[tuple[Cell, tuple[Mark, ...]], ...], ...]

    @property
    def title(self) -> str:
        return self.table.title

    @property
    def is_tall(self) -> bool:
        return len(self.rows) > MOST_ROWS


@dataclass
class References:
    """Ids of the marks that refer to each footnote, in their order on the page."""

    ids: dict[int, list[str]] = field(default_factory=dict)

    def add(self, number: int) -> Mark:
        ids = self.ids.setdefault(number, [])
        ids.append(f"mark-{number}-{len(ids) + 1}")
        return Mark(number, ids[-1])


def make_html_table(table: Table, table_id: str, references: References) -> HtmlTable:
    rows = (
        tuple((cell, tuple(map(references.add, cell.marks))) for cell in row) for row in table.rows
    )
    return HtmlTable(table_id, table, tuple(rows))


def find_sort_key(cell: Cell) -> str:
    """The figure in full; empty where there is none, which is sorted behind all others."""
    return "" if cell.figure is None else repr(cell.figure)
