"""Cells and tables: values until a format prints them, each in its own way."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Optional, TypeVar, Union

from dlperf_slurm.results.ratios import Ratio
from dlperf_slurm.stats.median import Interval

Row = TypeVar("Row")


@dataclass(frozen=True)
class Number:
    """How figures are written: by `spec`, as `format` takes it, and in the unit.

    `factor` is how many of the unit a figure's own unit has; `unit` comes with its blank. Where
    `last_place` is there, figures are written up to it and not by `spec`: 1 is tenths, -1 is tens.
    """

    spec: str = ".2f"
    factor: float = 1.0
    unit: str = ""
    last_place: Optional[int] = None

    def write(self, value: float) -> str:
        if self.last_place is None:
            return format(self.factor * value, self.spec)
        return f"{round(self.factor * value, self.last_place):.{max(self.last_place, 0)}f}"

    def limit(self, bounds: Optional[Interval]) -> "Number":
        """The form that has no more digits than bounds of a figure know: two of their half width.

        These are as many as an uncertainty is given with (GUM, JCGM 100:2008, 7.2.6).
        """
        half_width = 0.0 if bounds is None else self.factor * (bounds.high - bounds.low) / 2
        if half_width <= 0:
            return self
        limited = replace(self, last_place=1 - math.floor(math.log10(half_width)))
        is_shorter = len(limited.write(half_width)) < len(self.write(half_width))
        return limited if is_shorter else self


def write_digits(value: float, digits: int = 4) -> str:
    """A figure with so many digits that count, and never with an exponent: "1705", "0.0123"."""
    size = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{max(0, digits - 1 - size)}f}"


@dataclass(frozen=True)
class Duration:
    """How seconds are written, as short as they are precise: "42.1 s", "8 h 45 min"."""

    unit: str = ""

    def write(self, value: float) -> str:
        if round(value, 1) < 60:
            return f"{value:.1f} s"
        minutes, rest = divmod(round(value), 60)
        if minutes < 60:
            return f"{minutes} min {rest} s"
        return f"{minutes // 60} h {minutes % 60} min"

    def limit(self, bounds: Optional[Interval]) -> "Duration":
        """The form itself, which is never more than five digits."""
        return self


RATIO = Number()
COUNT = Number(".0f")
PERCENT = Number(".3f", 100)
SHARE = Number(".1f", 100, " %")
MILLISECONDS = Number(factor=1000)

# what stands where there is no figure
NO_REFERENCE = "no reference"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Cell:
    """One place of a table: a word, a figure, or several cells with a `joint` between them.

    Where `value` is None, `problem` is what stands in its place. A figure may have an interval, or
    the range of the samples that it is the median of, and (measured, planned) repeats where some
    are missing. It is printed with no more digits than these bounds know, also where it
    `hides_bounds`. `notes` are numbers of footnotes; `marks_first`, these stand before the rest.
    """

    value: Union[str, float, "tuple[Cell, ...]", None]
    form: Union[Number, Duration] = RATIO
    interval: Optional[Interval] = None
    range: Optional[Interval] = None
    hides_bounds: bool = False
    repeats: Optional[tuple[int, int]] = None
    notes: tuple[int, ...] = ()
    problem: str = ""
    joint: str = " / "
    marks_first: bool = False

    @property
    def is_word(self) -> bool:
        return isinstance(self.value, str)

    @property
    def figure(self) -> Optional[float]:
        """The figure by which a column is sorted, in its own unit; of several cells the first's."""
        if isinstance(self.value, tuple):
            return self.value[0].figure if self.value else None
        return None if isinstance(self.value, str) else self.value

    @property
    def text(self) -> str:
        """The value alone."""
        if isinstance(self.value, tuple):
            return self._join_parts(" ")
        if self.value is None:
            return self.problem
        if isinstance(self.value, str):
            return self.value
        return f"{self._known_form.write(self.value)}{self.form.unit}"

    @property
    def bounds(self) -> str:
        """The interval in parentheses, or the range in braces."""
        if self.hides_bounds:
            return ""
        if self.interval is not None:
            return f"({self._write_bounds(self.interval)})"
        return "" if self.range is None else f"{{{self._write_bounds(self.range)}}}"

    @property
    def spread(self) -> str:
        """How sure the figure is: its bounds, and how many repeats it has."""
        return " ".join(filter(None, (self.bounds, self._write_repeats())))

    @property
    def unmarked(self) -> str:
        """All but the footnotes."""
        return f"{self.text} {self.spread}".rstrip()

    @property
    def marks(self) -> tuple[int, ...]:
        """The numbers of its footnotes, each once."""
        return tuple(sorted(set(self.notes)))

    def write(self, gap: str = " ") -> str:
        """All of the cell as plain text, the footnotes as "[1][3]"; `gap` is around its bounds."""
        marks = "".join(f"[{number}]" for number in self.marks)
        if self.marks_first:
            return f"{marks} {self.text}".strip()
        if isinstance(self.value, tuple):
            last = self.value[-1] if self.value else self
            return f"{self._join_parts(gap)}{gap if last.bounds else ' '}{marks}".rstrip()
        rest = " ".join(filter(None, (self._write_repeats(), marks)))
        pieces = (self.text, self.bounds, rest)
        return (gap if self.bounds else " ").join(filter(None, pieces))

    def _write_bounds(self, bounds: Interval) -> str:
        return f"{self._known_form.write(bounds.low)} to {self._known_form.write(bounds.high)}"

    @property
    def _known_form(self) -> Union[Number, Duration]:
        return self.form.limit(self.interval or self.range)

    def _write_repeats(self) -> str:
        return "" if self.repeats is None else f"n={self.repeats[0]} of {self.repeats[1]}"

    def _join_parts(self, gap: str) -> str:
        parts = self.value if isinstance(self.value, tuple) else ()
        text = ""
        for number, part in enumerate(parts):
            if number:
                text += gap + self.joint.lstrip() if parts[number - 1].bounds else self.joint
            text += part.write(gap)
        return text


@dataclass(frozen=True)
class Table:
    """A table of cells, never an empty one; the first `text_columns` are words, not figures."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    text_columns: int
    caption: str


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column: its header, and what it shows of a row; `missing` where that has no figure.

    A ratio has its interval beside it.
    """

    header: str
    read: Callable[[Row], Union[Cell, Ratio, str, float, None]]
    form: Union[Number, Duration] = RATIO
    missing: str = ""

    def show(self, row: Row, problem: str) -> Cell:
        """The row's cell, with its problem where there is one in place of a figure."""
        value = self.read(row)
        if isinstance(value, Ratio):
            value = Cell(value.value, self.form, value.interval)
        cell = value if isinstance(value, Cell) else Cell(value, self.form)
        has_gap = cell.value is None and not cell.problem
        return replace(cell, problem=problem or self.missing) if has_gap else cell


def tabulate(
    title: str,
    words: Sequence[Column[Row]],
    figures: Sequence[Column[Row]],
    rows: Iterable[Row],
    caption: str,
    find_problem: Callable[[Row], str] = lambda row: "",
) -> Table:
    """One line per row: columns of words, then those of figures."""
    columns = [*words, *figures]
    cells = ([column.show(row, find_problem(row)) for column in columns] for row in rows)
    return make_table(title, [column.header for column in columns], cells, len(words), caption)


def make_table(
    title: str,
    header: Iterable[str],
    rows: Iterable[Iterable[Union[Cell, str]]],
    text_columns: int,
    caption: str,
) -> Table:
    """A table of cells and of plain words."""
    lines = tuple(tuple(map(make_cell, row)) for row in rows)
    return Table(title, tuple(header), lines, text_columns, caption)


def make_cell(value: Union[Cell, str]) -> Cell:
    """A word, where it is no cell yet."""
    return Cell(value) if isinstance(value, str) else value


def join_cells(cells: Sequence[Cell], joint: str, notes: Iterable[int] = ()) -> Cell:
    """Several cells in one place, with the notes behind them."""
    if len(cells) == 1:
        return replace(cells[0], notes=(*cells[0].notes, *notes))
    return Cell(tuple(cells), joint=joint, notes=tuple(notes))


def join_counts(counts: Sequence[int]) -> Cell:
    """Such as "16 and 32"; "none" where there is none."""
    cells = [Cell(count, COUNT) for count in counts]
    return join_cells(cells or [Cell(None, problem="none")], " and ")
