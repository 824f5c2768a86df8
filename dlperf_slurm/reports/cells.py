"""Cells and tables: typed values, independent of the output format."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Optional, Union

from dlperf_slurm.results.number_formats import RATIO, NumberFormat

if TYPE_CHECKING:
    from dlperf_slurm.stats.median import Interval


@dataclass(frozen=True)
class Cell:
    """A table cell: a text, a number, or several cells separated by `joint`.

    If `value` is None, `problem` is printed instead. A number may have an `interval`, or the
    `range` of its samples, which limit its digits, also if it `hides_bounds`; and `repeats`, as
    (measured, planned), if some are missing. `notes` are footnote numbers; `marks_first` prints
    them before the text. `link` is where its text leads to on a page.
    """

    value: Union[str, float, "tuple[Cell, ...]", None]
    form: NumberFormat = RATIO
    interval: "Optional[Interval]" = None
    range: "Optional[Interval]" = None
    hides_bounds: bool = False
    repeats: Optional[tuple[int, int]] = None
    notes: tuple[int, ...] = ()
    problem: str = ""
    joint: str = " / "
    marks_first: bool = False
    link: str = ""

    @property
    def is_word(self) -> bool:
        """Whether the cell is a text, not a number or several cells."""
        return isinstance(self.value, str)

    @property
    def figure(self) -> Optional[float]:
        """The number to sort by, in the unit of the data frame; None for a text.

        Of several cells that of the first.
        """
        if isinstance(self.value, tuple):
            return self.value[0].figure if self.value else None
        return None if isinstance(self.value, str) else self.value

    @property
    def text(self) -> str:
        """The value as text, or why it is missing; without bounds, repeats and footnotes."""
        if isinstance(self.value, tuple):
            return self._join_parts(" ")
        if self.value is None:
            return self.problem
        if isinstance(self.value, str):
            return self.value
        return f"{self.number}{self.form.unit}"

    @property
    def number(self) -> str:
        """The formatted number of a single value, without its unit; "" for any other cell."""
        if self.value is None or isinstance(self.value, (str, tuple)):
            return ""
        return self._known_form.write(self.value)

    @property
    def bounds(self) -> str:
        """The 95 % interval, "(98 to 103)", or the range, "{98 to 103}"; "" if none or hidden."""
        if self.hides_bounds:
            return ""
        if self.interval is not None:
            return f"({self._write_bounds(self.interval)})"
        return "" if self.range is None else f"{{{self._write_bounds(self.range)}}}"

    @property
    def spread(self) -> str:
        """The bounds, and the number of repeats if some are missing: "(98 to 103) n=6 of 7"."""
        return " ".join(filter(None, (self.bounds, self.counts)))

    @property
    def unmarked(self) -> str:
        """The value as text with bounds and repeats, without footnote numbers."""
        return f"{self.text} {self.spread}".rstrip()

    @property
    def marks(self) -> tuple[int, ...]:
        """The footnote numbers (`notes`), sorted and without duplicates."""
        return tuple(sorted(set(self.notes)))

    def write(self, gap: str = " ") -> str:
        """Format the cell as plain text, with footnotes as "[1][3]".

        `gap` is the text between the number and its bounds, such as a line break.
        """
        marks = "".join(f"[{number}]" for number in self.marks)
        if self.marks_first:
            return f"{marks} {self.text}".strip()
        if isinstance(self.value, tuple):
            last = self.value[-1] if self.value else self
            return f"{self._join_parts(gap)}{gap if last.bounds else ' '}{marks}".rstrip()
        rest = " ".join(filter(None, (self.counts, marks)))
        pieces = (self.text, self.bounds, rest)
        return (gap if self.bounds else " ").join(filter(None, pieces))

    def _write_bounds(self, bounds: "Interval") -> str:
        return f"{self._known_form.write(bounds.low)} to {self._known_form.write(bounds.high)}"

    @property
    def _known_form(self) -> NumberFormat:
        """The number format with only as many digits as the interval or range makes certain."""
        return self.form.limit(self.interval or self.range)

    @property
    def counts(self) -> str:
        """The number of repeats if some are missing: "n=6 of 7"; else ""."""
        return "" if self.repeats is None else f"n={self.repeats[0]} of {self.repeats[1]}"

    def _join_parts(self, gap: str) -> str:
        """Join the texts of several cells; `gap` is as in `write`."""
        parts = self.value if isinstance(self.value, tuple) else ()
        text = ""
        for number, part in enumerate(parts):
            if number:
                text += gap + self.joint.lstrip() if parts[number - 1].bounds else self.joint
            text += part.write(gap)
        return text


@dataclass(frozen=True)
class Table:
    """A table of cells with at least one row; the first `text_columns` columns are texts.

    `caption` is '' for none. `kind` is the name of its TableSpec, or "leaderboard"; `model` is the
    model of all its cases, or ''. `omit_first` are the columns, by number, that a terminal that is
    too narrow leaves out first, and a phone those of a leaderboard. `subject` has devices and date,
    for a table that is read alone.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    text_columns: int
    caption: str
    kind: str = ""
    model: str = ""
    omit_first: tuple[int, ...] = ()
    subject: str = ""

    @property
    def heading(self) -> str:
        """The title and the subject: "ResNet-50 training, amp; 8x NVIDIA H200, 2026-11-26"."""
        return "; ".join(filter(None, (self.title, self.subject)))

    @property
    def marks(self) -> list[int]:
        """The numbers of all footnotes that its cells refer to, ascending."""
        return sorted({number for row in self.rows for cell in row for number in cell.notes})


def make_table(
    title: str,
    header: Iterable[str],
    rows: Iterable[Iterable[Union[Cell, str]]],
    text_columns: int,
    caption: str,
    omit_first: Iterable[int] = (),
    subject: str = "",
) -> Table:
    """Make a table from rows of cells and plain texts.

    The first `text_columns` columns are texts. `omit_first` has the numbers of the columns that a
    narrow terminal leaves out first; `subject` is devices and date. `caption` is "" for none.
    """
    lines = tuple(tuple(map(make_cell, row)) for row in rows)
    omitted = tuple(omit_first)
    return Table(
        *(title, tuple(header), lines, text_columns, caption), omit_first=omitted, subject=subject
    )


def make_cell(value: Union[Cell, str]) -> Cell:
    """Convert a text to a cell; return a cell unchanged."""
    return Cell(value) if isinstance(value, str) else value


def join_cells(cells: Sequence[Cell], joint: str, notes: Iterable[int] = ()) -> Cell:
    """Combine several cells into one, with the text `joint` between them.

    `notes` are the numbers of additional footnotes.
    """
    if len(cells) == 1:
        return replace(cells[0], notes=(*cells[0].notes, *notes))
    return Cell(tuple(cells), joint=joint, notes=tuple(notes))
