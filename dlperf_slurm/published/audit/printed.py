"""A printed number -> the interval of values that print so; rows of such cells, and findings."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from operator import attrgetter
from typing import Optional

WRONG = "wrong"
TRUNCATED = "truncated"
STALE = "stale"
SWAPPED = "swapped columns"
ABOVE_DEVICES = "speedup above the device count"
OUT_OF_ORDER = "percentiles out of order"
LATENCY_OFF = "throughput x latency off"
CONTRADICTION = "speedups contradict each other"
DUPLICATE = "duplicate with another value"

SAMPLES_PER_S = "samples_per_s"
SPEEDUP = "speedup"
EFFICIENCY = "efficiency"
PRECISION_SPEEDUP = "precision_speedup"
TRAINING_TIME = "time"
TIME_SPEEDUP = "time_speedup"
LATENCY_AVG = "latency_avg"

FULL_PRECISIONS = ("fp32", "tf32")
# mixed precision, where no table says of which kind
REDUCED = "amp-fp16"

# the relative error of a double that was divided, printed in full and read again
EXACT_TOLERANCE = Fraction(1, 10**9)

# longer numbers are no figures, and Python refuses to convert some of them
_NUMBER = re.compile(r"[0-9]{1,30}(?:\.[0-9]{1,40})?(?:e[-+]?[0-9]{1,2})?")
_COUNT = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Span:
    """A closed interval of values."""

    low: Fraction
    high: Fraction

    def __truediv__(self, other: "Span") -> "Span":
        return Span(self.low / other.high, self.high / other.low)

    def __mul__(self, other: "Span") -> "Span":
        return Span(self.low * other.low, self.high * other.high)

    def meets(self, other: "Span") -> bool:
        """Whether both have a value in common."""
        return self.low <= other.high and other.low <= self.high


ONE = Span(Fraction(1), Fraction(1))


@dataclass(frozen=True)
class Cell:
    """A positive number as it was printed in a column.

    If it `is_exact` it was printed with all its digits, as in our own CSV; else its last digit is
    rounded. `spread` holds the repeats that it is the median of, as far as the table says so.
    Times `scale` it is in the base unit, which it is already where no unit is known.
    """

    text: str
    column: str
    is_exact: bool = False
    spread: Optional[Span] = None
    scale: Optional[Fraction] = None

    @property
    def value(self) -> Fraction:
        return Fraction(self.text) * (self.scale or 1)

    @property
    def unit(self) -> Fraction:
        """The unit of the last printed digit."""
        return Fraction(10) ** -_count_digits(self.text) * (self.scale or 1)

    @property
    def rounded(self) -> Span:
        """The values that print so when rounded: half a unit to both sides, with both ends."""
        half = self.value * EXACT_TOLERANCE if self.is_exact else self.unit / 2
        return Span(self.value - half, self.value + half)

    @property
    def cut(self) -> Span:
        """The values that print so when digits are cut off, not rounded."""
        if self.is_exact:
            return self.rounded
        # cutting digits off takes less than a whole unit away
        return Span(self.value, self.value + self.unit * (1 - EXACT_TOLERANCE))


_CONFIGURATION: Callable[["Row"], tuple[object, ...]] = attrgetter(
    *("model", "framework", "precision", "compiler", "batch_size", "hardware", "concurrency")
)


@dataclass(frozen=True)
class Row:
    """One configuration of a table with the cells that were printed for it.

    `where` is the line that readers know, when it is not that of the file. `software`, `note` and
    `table` tell figures of one configuration apart, and so does `remark`, words that follow the
    figures, but for speedups. A batch size and a topology are "" and devices are 0 where they were
    not printed. A row of several precisions becomes one Row for each. `section` is what tables of
    one setting that stand together share, such as one for each precision.
    """

    file: str
    line: int
    table: str
    model: str
    framework: str
    precision: str
    compiler: str
    batch_size: str
    devices: int
    cells: Mapping[str, Cell]
    where: str = ""
    software: str = ""
    note: str = ""
    hardware: str = ""
    repeat: int = 0
    remark: str = ""
    topology: str = ""
    section: str = ""
    concurrency: int = 0

    @property
    def configuration(self) -> tuple[object, ...]:
        """The properties, devices apart, that figures of one configuration share."""
        return _CONFIGURATION(self)

    @property
    def printed_line(self) -> tuple[str, int, str, str]:
        """The key that rows which were printed side by side share."""
        return (self.file, 0 if self.where else self.line, self.where, self.table)

    @property
    def samples_per_s(self) -> Optional[Cell]:
        return self.cells.get(SAMPLES_PER_S)

    def name_cell(self, cell: Cell) -> str:
        """The name of a cell: its column, and the words of the row that find it."""
        words = [
            self.software or self.framework,
            self.model,
            self.topology or (f"{self.devices} devices" if self.devices else ""),
            f"batch size {self.batch_size}" if self.batch_size else "",
            self.precision,
            "" if self.compiler in ("", "none") else self.compiler,
            self.note,
        ]
        return f"{cell.column}: " + ", ".join(word for word in words if word)


@dataclass(frozen=True)
class Finding:
    """A cell that does not follow from the others: what it says, and what they say.

    `excess` is how far it is off beyond what rounding explains, as a share; None where there is no
    such measure.
    """

    file: str
    line: int
    where: str
    cell: str
    published: str
    follows: str
    kind: str
    reason: str
    excess: Optional[float] = None


@dataclass(frozen=True)
class NotAudited:
    """A table, column or cell that nothing was recomputed of, and why."""

    file: str
    line: int
    what: str
    reason: str


def make_finding(
    row: Row, cell: Cell, kind: str, follows: str, reason: str, excess: Optional[float] = None
) -> Finding:
    name = row.name_cell(cell)
    return Finding(row.file, row.line, row.where, name, cell.text, follows, kind, reason, excess)


def measure_gap(one: Span, other: Span) -> float:
    """How far apart two intervals are, as a share of the nearer end; 0 where they meet."""
    low, high = (one, other) if one.high < other.high else (other, one)
    return max(0.0, float(high.low / low.high - 1)) if low.high > 0 else 0.0


def _count_digits(text: str) -> int:
    """The digits behind the point; fewer than none where an exponent moves the point."""
    number, _, exponent = text.partition("e")
    return len(number.partition(".")[2]) - int(exponent or 0)


def make_cell(text: str, column: str, is_exact: bool = False) -> Optional[Cell]:
    """The cell of a positive number without thousands separators; None for any other text."""
    number = text.strip().replace(",", "")
    if _NUMBER.fullmatch(number) is None or not Fraction(number):
        return None
    return Cell(number, column, is_exact)


def read_count(text: str) -> int:
    """A number of devices or samples; 0 for any other text."""
    return int(text) if _COUNT.fullmatch(text) else 0


def format_value(value: Fraction, cell: Cell) -> str:
    """The value with two digits more than the cell has, to show on which side of it it lies."""
    digits = max(_count_digits(cell.text) + 2, 0)
    return f"{float(value / (cell.scale or 1)):.{min(digits, 6)}f}"
